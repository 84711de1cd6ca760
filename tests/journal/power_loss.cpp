// The machine loses its power at a random call of a job that follows on one that was killed at a random call: names and
// bytes that were not synced are lost, cut, or zeros. What was reported as committed is in the journal afterwards, and the
// next job gives the right file.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/journal/fake_job.h"
#include "tests/journal/faulty_calls.h"
#include "tests/journal/shared_report.h"

namespace lockstep {
namespace {

constexpr int kLines = 16;

TEST(PowerLoss, NothingCommittedIsLost) {
  const char* rounds = std::getenv("LOCKSTEP_CRASH_ROUNDS");
  const int n_rounds = rounds != nullptr ? std::atoi(rounds) : 300;
  std::mt19937_64 random(1);
  int n_finished = 0, n_acknowledged = 0;
  for (int round = 0; round < n_rounds && !HasFailure(); ++round) {
    const Scratch scratch;
    const std::string out = scratch / "out", backups = scratch / "backups";
    std::filesystem::create_directory(backups);
    SharedReport shared;
    Report& report = *shared;
    const auto kill_at = static_cast<int64_t>(random() % 250), lose_at = static_cast<int64_t>(1 + random() % 250);
    const uint64_t seed = random();
    const int status = in_child([&] {
      const FakeJob job{.n_lines = kLines, .seed = seed, .acknowledge = [&](auto lines) { report.acknowledge(lines); }};
      try {
        if (kill_at > 0) {
          faulty::arm({.at = kill_at, .error = faulty::kDead, .for_ever = true, .backups = backups});
          try {
            run_fake_job(out, job);
          } catch (const Error&) {
          }
          faulty::disarm();
          std::filesystem::remove(out + "/journal/lock");  // this process lives on, the job does not
          for (const auto& entry : std::filesystem::directory_iterator(out + "/journal"))
            if (entry.path().filename().string().starts_with("lock.after-")) std::filesystem::remove(entry.path());
        }
        faulty::arm({.at = lose_at, .error = faulty::kPowerLoss, .seed = seed, .backups = backups});
        run_fake_job(out, job);
        report.finished = true;
        faulty::lose_power();
      } catch (const std::exception& e) {
        report.say(e.what());
        return 1;
      }
      return 0;
    });
    ASSERT_EQ(status, 99) << report.message;
    n_finished += report.finished;
    n_acknowledged += report.n_acknowledged;
    const std::string where = concat("round ", round, ", killed at ", kill_at, ", power lost at ", lose_at);
    EXPECT_EQ(lost_of(out, report.lines()), "") << where;
    const std::string file = out + "/completions.jsonl";
    if (report.finished || std::filesystem::exists(file)) {
      EXPECT_EQ(read_file(file), expected_completions(kLines)) << where;
    }
    run_fake_job(out, {.n_lines = kLines, .seed = seed + 1});
    EXPECT_EQ(read_file(file), expected_completions(kLines)) << where;
  }
  EXPECT_GT(n_finished, n_rounds / 20);
  EXPECT_LT(n_finished, n_rounds * 2 / 3);
  EXPECT_GT(n_acknowledged, n_rounds);
}

// Runs `body` in a child, takes the power away, and looks at what is left, with several outcomes of chance.
void after_power_loss(const std::function<void(const std::string& dir)>& body,
                      const std::function<void(const std::string& dir)>& expect) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Scratch scratch;
    const std::string dir = scratch / "dir", backups = scratch / "backups";
    std::filesystem::create_directory(dir);
    std::filesystem::create_directory(backups);
    ASSERT_EQ(in_child([&]() -> int {
                faulty::arm({.seed = seed, .backups = backups});
                body(dir);
                faulty::lose_power();
              }),
              99);
    expect(dir);
  }
}

TEST(PowerLoss, WrittenFilesHaveTheirNamesAndBytes) {
  after_power_loss(
      [](const std::string& dir) {
        atomic_write(dir + "/a", "first");
        atomic_write(dir + "/a", "second");
        create_exclusive(dir + "/b", "whole");
      },
      [](const std::string& dir) {
        EXPECT_EQ(read_file(dir + "/a"), "second");
        EXPECT_EQ(read_file(dir + "/b"), "whole");
      });
}

// A killed job's lines that were only in memory: once a later job counts them as done, they are on disk.
TEST(PowerLoss, SealedLinesStay) {
  const std::string record(3000000, 'x');
  after_power_loss(
      [&](const std::string& out) {
        prepare_output(out);
        {
          JournalWriter killed(out, open_epoch(out, recover_journal(out), "{}"), 0);
          killed.append({line_at(0).id, line_at(0).content, false, record});  // written, for its size, and not synced
        }
        const JournalState state = recover_journal(out);
        check(state.done.size() == 1, "the line is in memory");
        open_epoch(out, state, "{}");
      },
      [&](const std::string& out) {
        const JournalState state = recover_journal(out);
        ASSERT_EQ(state.done.size(), 1u);
        EXPECT_EQ(read_record(state, state.done.begin()->second) == record, true);
      });
}

}  // namespace
}  // namespace lockstep
