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
  int n_losses = 0, n_acknowledged = 0;
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
      } catch (const std::exception& e) {
        report.say(e.what());
        return 1;
      }
      return 0;
    });
    ASSERT_TRUE(status == 0 || status == 99) << status << ": " << report.message;
    n_losses += status == 99;
    n_acknowledged += report.n_acknowledged;
    const std::string where = concat("round ", round, ", killed at ", kill_at, ", power lost at ", lose_at);
    EXPECT_EQ(lost_of(out, report.lines()), "") << where;
    const std::string file = out + "/completions.jsonl";
    if (std::filesystem::exists(file)) {
      EXPECT_EQ(read_file(file), expected_completions(kLines)) << where;
    }
    run_fake_job(out, {.n_lines = kLines, .seed = seed + 1});
    EXPECT_EQ(read_file(file), expected_completions(kLines)) << where;
  }
  EXPECT_GT(n_losses, n_rounds / 3);
  EXPECT_GT(n_acknowledged, n_rounds);
}

}  // namespace
}  // namespace lockstep
