// Each system call of a job fails, one after the other, in every way: the job ends well with the right file, or with an
// Error (output_io), and then a job without faults gives the right file. What was reported as committed is there.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>

#include "tests/journal/fake_job.h"
#include "tests/journal/faulty_calls.h"
#include "tests/journal/shared_report.h"

namespace lockstep {
namespace {

constexpr int kLines = 6;

// The job in a process of its own, with this plan. The exit status: 0 well, 1 an Error (output_io), else a mistake.
int run_with_faults(const std::string& out, const faulty::Plan& plan, Report& report) {
  return in_child([&] {
    faulty::arm(plan);
    try {
      run_fake_job(out, {.n_lines = kLines, .seed = 3, .acknowledge = [&](auto lines) { report.acknowledge(lines); }});
    } catch (const Error& e) {
      report.n_calls = faulty::n_calls();
      report.say(e.what());
      return e.code == ExitCode::output_io ? 1 : 2;
    }
    report.n_calls = faulty::n_calls();
    return 0;
  });
}

class Faults : public testing::TestWithParam<int> {
 protected:
  // True while call `n` exists.
  bool one_fault(const faulty::Plan& plan) {
    const Scratch scratch;
    const std::string out = scratch / "out";
    SharedReport shared;
    Report& report = *shared;
    const std::string where = concat("call ", plan.at, plan.for_ever ? " and all after it" : "", ", error ", plan.error);
    const int status = run_with_faults(out, plan, report);
    EXPECT_TRUE(status == 0 || status == 1) << where << ": " << report.message;
    n_errors += status == 1;
    const std::string file = out + "/completions.jsonl";
    EXPECT_EQ(std::filesystem::exists(file) || status == 0 ? read_file(file) : expected_completions(kLines),
              expected_completions(kLines))
        << where;
    EXPECT_EQ(lost_of(out, report.lines()), "") << where << ": " << report.message;
    run_fake_job(out, {.n_lines = kLines, .seed = 4});
    EXPECT_EQ(read_file(file), expected_completions(kLines)) << where << ": " << report.message;
    return report.n_calls >= plan.at;
  }
  int n_errors = 0;
};

TEST_P(Faults, EachCallFailsOnce) {
  int n = 1;
  while (one_fault({.at = n, .error = GetParam()}) && !HasFailure()) ++n;
  EXPECT_GT(n, 50);
  const bool harmless = GetParam() == EINTR || GetParam() == faulty::kShortWrite;
  EXPECT_EQ(n_errors == 0, harmless) << n_errors << " of " << n;
}

TEST_P(Faults, EachCallAndAllAfterItFail) {
  const int step = std::getenv("LOCKSTEP_CRASH_ROUNDS") != nullptr ? 1 : 3;  // each third call, to be quick
  int n = 1 + GetParam() % step;
  while (one_fault({.at = n, .error = GetParam(), .for_ever = true}) && !HasFailure()) n += step;
  EXPECT_GT(n, 50);
}

INSTANTIATE_TEST_SUITE_P(Errors, Faults,
                         testing::Values(EIO, ENOSPC, EDQUOT, EINTR, ESTALE, faulty::kShortWrite, faulty::kDoneButFailed),
                         [](const auto& error) {
                           switch (error.param) {
                             case EIO:
                               return "EIO";
                             case ENOSPC:
                               return "ENOSPC";
                             case EDQUOT:
                               return "EDQUOT";
                             case EINTR:
                               return "EINTR";
                             case ESTALE:
                               return "ESTALE";
                             case faulty::kShortWrite:
                               return "ShortWrite";
                             default:
                               return "DoneButFailed";
                           }
                         });

TEST(NoHardLinks, TheJobRunsAllTheSame) {
  const Scratch scratch;
  const std::string out = scratch / "out";
  for (const int n : {6, 10}) {
    faulty::arm({.error = faulty::kNoHardLinks});
    run_fake_job(out, {.n_lines = n});
    faulty::disarm();
    EXPECT_EQ(read_file(out + "/completions.jsonl"), expected_completions(n));
  }
}

// A file server whose answer got lost: the name is made, though the call failed.
TEST(LostReply, WhatWasDoneCountsAsDone) {
  const Scratch scratch;
  faulty::arm({.at = 4, .error = faulty::kDoneButFailed});  // open, write, fdatasync, link
  EXPECT_TRUE(create_exclusive(scratch / "a", "x"));
  faulty::arm({.at = 5, .error = faulty::kDoneButFailed});  // open, write, fsync, close, rename
  atomic_write(scratch / "b", "y");
  faulty::disarm();
  EXPECT_EQ(read_file(scratch / "a"), "x");
  EXPECT_EQ(read_file(scratch / "b"), "y");
}

// Between the look at a stale lock and the claim on it, another job took it, whole way: its lock must stay.
TEST(LockRace, AClaimThatComesTooLateIsDropped) {
  const Scratch scratch;
  const std::string out = scratch / "out", lock = out + "/journal/lock";
  prepare_output(out);
  const auto holder = [](const std::string& host, const std::string& token) {
    return R"({"host":")" + host + R"(","pid":1,"process_start":1,"machine":"m","since":"","token":")" + token + "\"}\n";
  };
  write_file(lock, holder("node7", "0123456789abcdef"));
  std::filesystem::last_write_time(lock, std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  faulty::before_link([&](const std::string& name) {
    if (name.find("lock.after-") == std::string::npos) return;
    faulty::before_link({});
    write_file(lock, holder("node9", "00000000000000aa"));
  });
  std::string message;
  try {
    DirectoryLock late(out);
    EXPECT_TRUE(false) << "took " << late.replaced();
  } catch (const Error& e) {
    message = e.what();
  }
  faulty::before_link({});
  EXPECT_NE(message.find("node9"), std::string::npos) << message;
  EXPECT_EQ(read_file(lock), holder("node9", "00000000000000aa"));
  EXPECT_FALSE(std::filesystem::exists(lock + ".after-0123456789abcdef"));
}

// After a sync that failed the kernel may call lost data clean: the records go into a second file, once.
TEST(FailedSync, TheUncommittedRecordsGoIntoASecondFile) {
  const Scratch scratch;
  const std::string out = scratch / "out";
  prepare_output(out);
  JournalWriter w(out, open_epoch(out, recover_journal(out), "{}"), 2);
  w.append(entry_at(0));
  w.commit();
  w.append(entry_at(1));
  faulty::arm({.at = 2, .error = EIO});  // write, fdatasync
  EXPECT_EQ(w.commit(), 2);
  w.append(entry_at(2));
  EXPECT_EQ(w.commit(), 3);
  const std::string first = shard_path(out, {1, 2, 0}), second = shard_path(out, {1, 2, 1});
  std::string expected;
  append_line(expected, entry_at(1), 1);
  append_line(expected, entry_at(2), 1);
  EXPECT_EQ(read_file(second), expected);
  EXPECT_EQ(recover_journal(out).n_duplicates, 1);

  w.append(entry_at(3));
  faulty::arm({.at = 2, .error = EIO});
  try {
    w.commit();
    ADD_FAILURE() << "a second failure is the end";
  } catch (const Error& e) {
    EXPECT_EQ(e.what(), second + ": fdatasync: Input/output error");
  }
  faulty::disarm();
  EXPECT_THROW(w.commit(), Error);
}

TEST(FailedSync, AFullDiskIsNotTriedAgain) {
  for (const int error : {ENOSPC, EDQUOT}) {
    const Scratch scratch;
    const std::string out = scratch / "out";
    prepare_output(out);
    JournalWriter w(out, open_epoch(out, recover_journal(out), "{}"), 0);
    w.append(entry_at(0));
    faulty::arm({.at = 1, .error = error});
    EXPECT_THROW(w.commit(), Error);
    faulty::disarm();
    EXPECT_FALSE(std::filesystem::exists(shard_path(out, {1, 0, 1})));
    EXPECT_EQ(recover_journal(out).n_damaged, 1);  // half a line
  }
}

}  // namespace
}  // namespace lockstep
