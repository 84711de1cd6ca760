#include "journal/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <csignal>

#include "tests/journal/fake_job.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr double kNever = 1e9;

class JournalWriterTest : public testing::Test {
 protected:
  JournalWriterTest() { prepare_output(out); }
  int64_t open() { return open_epoch(out, recover_journal(out), "{}"); }
  std::string record_of(const JournalState& state, int i) const {
    const auto at = state.done.find(line_at(i).id);
    return at == state.done.end() ? "none" : read_record(state, at->second);
  }
  static std::string message_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& e) {
      return concat(static_cast<int>(e.code), " ", e.what());
    }
    return "no error";
  }
  Scratch scratch;
  std::string out = scratch / "out";
};

TEST_F(JournalWriterTest, WhatIsCommittedIsRecovered) {
  const int64_t epoch = open();
  EXPECT_EQ(epoch, 1);
  JournalWriter w(out, epoch, 0);
  for (int i = 0; i < 10; ++i) w.append(entry_at(i));
  EXPECT_EQ(recover_journal(out).done.size(), 0u);  // still in memory
  EXPECT_EQ(w.commit(), 10);
  w.append(entry_at(10));
  EXPECT_EQ(w.commit(), 11);
  EXPECT_EQ(w.commit(), 11);

  const JournalState state = recover_journal(out);
  EXPECT_EQ(state.done.size(), 11u);
  EXPECT_EQ(state.n_failed, 2);  // lines 3 and 10
  EXPECT_EQ(state.n_damaged, 0);
  EXPECT_EQ(state.n_duplicates, 0);
  EXPECT_EQ(state.last_epoch, 1);
  EXPECT_THAT(state.notes, IsEmpty());
  for (int i = 0; i < 11; ++i) {
    EXPECT_EQ(record_of(state, i), entry_at(i).record);
    EXPECT_EQ(state.done.at(line_at(i).id).failed, fails_at(i));
    EXPECT_EQ(state.done.at(line_at(i).id).content, line_at(i).content);
  }
}

TEST_F(JournalWriterTest, ACommitIsDueByRecordsBytesOrAge) {
  JournalWriter by_records(out, open(), 0, {.commit_s = kNever, .commit_bytes = 1 << 30, .commit_records = 3});
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(by_records.commit_due()) << i;
    by_records.append(entry_at(i));
  }
  EXPECT_TRUE(by_records.commit_due());
  by_records.commit();
  EXPECT_FALSE(by_records.commit_due());

  JournalWriter by_bytes(out, 1, 1, {.commit_s = kNever, .commit_bytes = 1000, .commit_records = 1 << 30});
  by_bytes.append({{1, 1}, 1, false, std::string(900, 'x')});
  EXPECT_FALSE(by_bytes.commit_due());
  by_bytes.append({{1, 2}, 1, false, "{}"});
  EXPECT_TRUE(by_bytes.commit_due());

  JournalWriter by_age(out, 1, 2, {.commit_s = 0, .commit_bytes = 1 << 30, .commit_records = 1 << 30});
  EXPECT_FALSE(by_age.commit_due());  // nothing to commit has no age
  by_age.append(entry_at(0));
  EXPECT_TRUE(by_age.commit_due());
}

TEST_F(JournalWriterTest, OneWriterAShard) {
  const int64_t epoch = open();
  JournalWriter first(out, epoch, 0);
  EXPECT_THAT(message_of([&] { JournalWriter second(out, epoch, 0); }), AllOf(HasSubstr("74 "), HasSubstr("File exists")));
}

TEST_F(JournalWriterTest, LargeBuffersAreWrittenEarlyAndCommittedInTime) {
  JournalWriter w(out, open(), 0, {.commit_s = kNever});
  const std::string record = std::string(700000, 'x');
  for (uint64_t i = 0; i < 2; ++i) w.append({{1, i}, 1, false, record});
  EXPECT_EQ(recover_journal(out).done.size(), 2u);
  EXPECT_EQ(w.n_committed(), 0);
  for (uint64_t i = 2; i < 100; ++i) w.append({{1, i}, 1, false, record});
  EXPECT_GT(w.n_committed(), 0);
}

TEST_F(JournalWriterTest, AFullDiskIsNamedAndResumeGoesOn) {
  const pid_t child = ::fork();
  if (child == 0) {  // a limit on file size stands for the disk; EFBIG as ENOSPC
    const rlimit limit{20000, 20000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    ::signal(SIGXFSZ, SIG_IGN);
    int status = 1;
    try {
      JournalWriter w(out, open(), 0);
      for (int i = 0;; ++i) {
        w.append(entry_at(i));
        w.commit();
      }
    } catch (const Error& e) {
      const bool named = std::string(e.what()).find("e0001-w000.jsonl: write: File too large") != std::string::npos;
      status = named && e.code == ExitCode::output_io ? 0 : 2;
    }
    ::_exit(status);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(WEXITSTATUS(status), 0);

  JournalState state = recover_journal(out);
  const auto n = static_cast<int>(state.done.size());
  EXPECT_GT(n, 10);
  EXPECT_EQ(state.n_damaged, 1);  // the line that had no room
  ASSERT_EQ(state.notes.size(), 1u);
  EXPECT_THAT(state.notes[0], HasSubstr("e0001-w000.jsonl: a torn last line"));
  JournalWriter w(out, open_epoch(out, state, "{}"), 0);
  for (int i = n; i < n + 5; ++i) w.append(entry_at(i));
  w.commit();
  state = recover_journal(out);
  for (int i = 0; i < n + 5; ++i) EXPECT_EQ(record_of(state, i), entry_at(i).record) << i;
}

TEST_F(JournalWriterTest, AfterAnErrorTheWriterStaysClosed) {
  JournalWriter w(out, open(), 0);
  w.append(entry_at(0));
  write_file(epoch_path(out, 2), "{}");  // a later job
  EXPECT_THAT(message_of([&] { w.commit(); }), AllOf(HasSubstr("2 "), HasSubstr("another job took this directory over")));
  EXPECT_THAT(message_of([&] { w.append(entry_at(1)); }), HasSubstr("closed after an error"));
  EXPECT_THAT(message_of([&] { w.commit(); }), HasSubstr("closed after an error"));
  EXPECT_EQ(w.n_committed(), 0);
}

// ---- recovery ----

TEST_F(JournalWriterTest, ADirectoryWithoutAJournalIsEmpty) {
  const JournalState state = recover_journal(scratch / "none");
  EXPECT_TRUE(state.done.empty());
  EXPECT_EQ(state.last_epoch, 0);
  EXPECT_EQ(state.first_epoch, 1);
}

TEST_F(JournalWriterTest, AnAnswerBeatsAFailureThenTheLowerEpochWins) {
  const Digest id{7, 7};
  const auto write = [&](bool failed, const std::string& record) {
    JournalWriter w(out, open(), 0);
    w.append({id, 1, failed, record});
    w.commit();
  };
  const auto winner = [&](Prefer prefer = Prefer::answered) {
    const JournalState state = recover_journal(out, prefer);
    return read_record(state, state.done.at(id));
  };
  write(true, R"({"failed":1})");
  write(true, R"({"failed":2})");
  EXPECT_EQ(winner(), R"({"failed":1})");
  EXPECT_EQ(recover_journal(out).n_failed, 1);
  write(false, R"({"answered":3})");
  write(false, R"({"answered":4})");
  write(true, R"({"failed":5})");
  EXPECT_EQ(winner(), R"({"answered":3})");
  EXPECT_EQ(winner(Prefer::first), R"({"failed":1})");
  const JournalState state = recover_journal(out);
  EXPECT_EQ(state.n_duplicates, 4);
  EXPECT_EQ(state.n_failed, 0);
  EXPECT_EQ(state.done.size(), 1u);
}

TEST_F(JournalWriterTest, DamageIsSkippedCountedAndReported) {
  {
    JournalWriter w(out, open(), 0);
    for (int i = 0; i < 5; ++i) w.append(entry_at(i));
    w.commit();
  }
  const std::string path = shard_path(out, {1, 0, 0});
  std::string bytes = read_file(path);
  bytes[bytes.find("ask-2")] = 'b';
  write_file(path, bytes + "torn");
  const JournalState state = recover_journal(out);
  EXPECT_EQ(state.done.size(), 4u);
  EXPECT_EQ(state.n_damaged, 2);
  EXPECT_EQ(record_of(state, 2), "none");
  EXPECT_EQ(record_of(state, 4), entry_at(4).record);
  ASSERT_EQ(state.notes.size(), 1u);
  EXPECT_THAT(state.notes[0], HasSubstr("e0001-w000.jsonl: 1 damaged lines, a torn last line of 4 bytes, first at byte"));
}

TEST_F(JournalWriterTest, ARecordThatWasDamagedAfterRecoveryIsNotHandedOut) {
  JournalWriter w(out, open(), 0);
  w.append(entry_at(0));
  w.commit();
  const JournalState state = recover_journal(out);
  const std::string path = shard_path(out, {1, 0, 0});
  const std::string bytes = read_file(path);
  write_file(path, bytes.substr(0, bytes.size() - 3));
  EXPECT_THAT(message_of([&] { record_of(state, 0); }),
              AllOf(HasSubstr("74 "), HasSubstr("e0001-w000.jsonl"), HasSubstr("damaged")));
}

TEST_F(JournalWriterTest, RecoveryTakesLessThanAHundredBytesARecord) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer has its own allocator";
#endif
  const int64_t epoch = open();
  constexpr uint64_t n = 100000;
  std::string bytes;
  for (uint64_t i = 0; i < n; ++i)
    append_line(bytes, {{i * 0x9E3779B97F4A7C15u, i}, i, false, R"({"id":"r","text":"some text"})"}, epoch);
  write_file(shard_path(out, {epoch, 0, 0}), bytes);
  const auto in_use = [] {
    const auto m = ::mallinfo2();
    return m.uordblks + m.hblkhd;
  };
  const size_t before = in_use();
  const JournalState state = recover_journal(out);
  EXPECT_EQ(state.done.size(), n);
  EXPECT_LT(in_use() - before, 100 * n);
}

}  // namespace
}  // namespace lockstep
