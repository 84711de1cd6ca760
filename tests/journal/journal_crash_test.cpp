// Kills a job with SIGKILL at random moments and starts it again, until it is done. The final file is that of a run that
// was never killed, and what a commit reported before a kill is there unchanged. LOCKSTEP_CRASH_ROUNDS: kills (100).
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <memory>
#include <thread>

#include "tests/journal/fake_job.h"

namespace lockstep {
namespace {

int n_rounds() {
  const char* text = std::getenv("LOCKSTEP_CRASH_ROUNDS");
  return text != nullptr ? std::max(1, std::atoi(text)) : 100;
}

// Runs a job in its own process, kills it after `patience` (0: never), and adds what it acknowledged. True: it finished.
bool run_process(const std::string& out, int n_lines, uint64_t seed, std::chrono::microseconds patience,
                 std::vector<int>& acknowledged) {
  int ends[2];
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const std::string fd = std::to_string(ends[1]), lines = std::to_string(n_lines), s = std::to_string(seed);
  const pid_t child = ::fork();
  if (child == 0) {
    ::fcntl(ends[1], F_SETFD, 0);
    ::execl(JOURNAL_CRASH_WRITER, JOURNAL_CRASH_WRITER, out.c_str(), lines.c_str(), "3", s.c_str(), fd.c_str(), nullptr);
    ::_exit(127);
  }
  ::close(ends[1]);
  if (patience.count() > 0) {
    std::this_thread::sleep_for(patience);
    ::kill(child, SIGKILL);
  }
  for (int line; ::read(ends[0], &line, sizeof line) == sizeof line;) acknowledged.push_back(line);
  ::close(ends[0]);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  if (WIFSIGNALED(status)) {
    EXPECT_EQ(WTERMSIG(status), SIGKILL);
    return false;
  }
  EXPECT_EQ(WEXITSTATUS(status), 0) << "a job that was not killed failed";
  return true;
}

TEST(JournalCrash, AnyNumberOfKills) {
  constexpr int n_lines = 300;
  const std::string expected = expected_completions(n_lines);
  std::mt19937_64 random(20);
  std::unique_ptr<Scratch> scratch;
  std::vector<int> acknowledged;
  int n_kills = 0, n_finished = 0, n_acknowledged = 0;
  const auto begin = [&] {
    scratch = std::make_unique<Scratch>();
    acknowledged.clear();
  };
  const auto verify = [&] {
    const std::string out = *scratch / "out";
    EXPECT_EQ(read_file(out + "/completions.jsonl") == expected, true);
    EXPECT_EQ(lost_of(out, acknowledged), "");
    ++n_finished;
  };

  // How long a job takes here, so that kills fall on all of its parts.
  begin();
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(run_process(*scratch / "out", n_lines, random(), {}, acknowledged));
  const auto whole = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start);
  verify();
  std::vector<int> in_order = acknowledged;
  std::ranges::sort(in_order);
  ASSERT_EQ(in_order.size(), static_cast<size_t>(n_lines));

  begin();
  double span_us = static_cast<double>(whole.count());
  while (n_kills < n_rounds() && !HasFailure()) {
    const std::string out = *scratch / "out";
    const std::chrono::microseconds patience(1 + random() % static_cast<uint64_t>(span_us));
    const bool finished = run_process(out, n_lines, random(), patience, acknowledged);
    n_kills += !finished;
    span_us = std::clamp(span_us * (finished ? 0.8 : 1.1), 500.0, 2.0 * static_cast<double>(whole.count()));
    const std::string file = out + "/completions.jsonl";
    if (std::filesystem::exists(file)) {
      EXPECT_EQ(read_file(file) == expected, true);
    }
    ASSERT_EQ(lost_of(out, acknowledged), "") << "after kill " << n_kills;
    n_acknowledged += static_cast<int>(acknowledged.size());
    if (finished) {
      verify();
      begin();
    }
  }
  ASSERT_TRUE(run_process(*scratch / "out", n_lines, random(), {}, acknowledged));
  verify();
  EXPECT_GT(n_acknowledged, 0) << "no kill came late enough to test anything";
  RecordProperty("kills", n_kills);
  RecordProperty("finished", n_finished);
  std::printf("%d kills, %d runs finished\n", n_kills, n_finished);
}

// SIGSTOP stands for a job that another took for dead: it wakes up after the next one began, and writes on.
TEST(JournalCrash, AStoppedJobThatWakesUpChangesNothing) {
  constexpr int n_lines = 60;
  for (uint64_t round = 0; round < 5; ++round) {
    const Scratch scratch;
    const std::string out = scratch / "out";
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        int n = 0;
        run_fake_job(out, {.n_lines = n_lines, .n_writers = 2, .seed = round, .acknowledge = [&](std::span<const int> lines) {
                             if (::write(ends[1], lines.data(), lines.size_bytes()) < 0) ::_exit(3);
                             if (++n == 4) ::raise(SIGSTOP);
                           }});
      } catch (const Error& e) {
        ::_exit(e.code == ExitCode::usage ? 10 : 11);
      }
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
    ASSERT_TRUE(WIFSTOPPED(status));
    ::close(ends[1]);
    // Its lock goes, as --takeover from another host would replace it.
    std::filesystem::remove(out + "/journal/lock");
    {
      DirectoryLock lock(out);
      const auto lines = lines_up_to(n_lines);
      const JournalState state = recover_journal(out);
      const ResumePlan plan = plan_resume(state, lines, false);
      JournalWriter w(out, open_epoch(out, state, "{}"), 0);
      ASSERT_GT(plan.to_run.size(), 10u);
      for (size_t i = 0; i < plan.to_run.size(); ++i) {
        if (i == 5) ::kill(child, SIGCONT);
        if (i == 7) {
          ASSERT_EQ(::waitpid(child, &status, 0), child);
        }
        w.append(entry_at(static_cast<int>(plan.to_run[i])));
        w.commit();
      }
      EXPECT_TRUE(WIFEXITED(status));
      EXPECT_EQ(WEXITSTATUS(status), 10);  // it noticed, and said so
      std::vector<int> acknowledged;
      for (int line; ::read(ends[0], &line, sizeof line) == sizeof line;) acknowledged.push_back(line);
      ::close(ends[0]);
      EXPECT_GE(acknowledged.size(), 1u);
      EXPECT_EQ(lost_of(out, acknowledged), "");
      merge_outputs(out, lines, recover_journal(out), false);
    }
    EXPECT_EQ(read_file(out + "/completions.jsonl"), expected_completions(n_lines));
  }
}

}  // namespace
}  // namespace lockstep
