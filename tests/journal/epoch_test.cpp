#include "journal/epoch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/journal/fake_job.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class EpochTest : public testing::Test {
 protected:
  EpochTest() { prepare_output(out); }
  int64_t open() { return open_epoch(out, recover_journal(out), R"({"hosts":["a"]})"); }
  static std::string message_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& e) {
      return concat(static_cast<int>(e.code), " ", e.what());
    }
    return "no error";
  }
  void write(int64_t epoch, int writer, int from, int to) {
    JournalWriter w(out, epoch, writer);
    for (int i = from; i < to; ++i) w.append(entry_at(i));
    w.commit();
  }
  void append_raw(const ShardName& name, int line, const std::string& tail = "") {
    std::string bytes = read_file(shard_path(out, name));
    append_line(bytes, entry_at(line), name.epoch);
    write_file(shard_path(out, name), bytes + tail);
  }
  bool has(const JournalState& state, int i) const { return state.done.contains(line_at(i).id); }
  Scratch scratch;
  std::string out = scratch / "out";
};

TEST_F(EpochTest, NumbersCountUpAndTheFileSaysWhat) {
  EXPECT_EQ(open(), 1);
  write(1, 0, 0, 3);
  EXPECT_EQ(open(), 2);
  EXPECT_EQ(open(), 3);
  const auto file = nlohmann::json::parse(read_file(epoch_path(out, 2)));
  EXPECT_EQ(file["epoch"], 2);
  EXPECT_EQ(file["about"]["hosts"][0], "a");
  EXPECT_EQ(file["sealed"]["e0001-w000.jsonl"], std::filesystem::file_size(shard_path(out, {1, 0, 0})));
  EXPECT_EQ(nlohmann::json::parse(read_file(epoch_path(out, 3)))["sealed"], file["sealed"]);
  EXPECT_THAT(epoch_path(out, 12345), HasSubstr("/journal/epochs/12345.json"));
}

TEST_F(EpochTest, TheSecondOfTwoJobsIsRefused) {
  const JournalState state = recover_journal(out);
  EXPECT_EQ(open_epoch(out, state, "{}"), 1);
  EXPECT_THAT(message_of([&] { open_epoch(out, state, "{}"); }), AllOf(HasSubstr("2 "), HasSubstr("another job started here")));
  EXPECT_THROW(open_epoch(out, recover_journal(out), "no JSON"), Error);
}

TEST_F(EpochTest, WhatALateWriterAppendsNeverCounts) {
  const int64_t old = open();
  JournalWriter late(out, old, 0);
  late.append(entry_at(0));
  late.commit();
  const int64_t epoch = open();
  late.append(entry_at(1));
  EXPECT_THAT(message_of([&] { late.commit(); }), HasSubstr("another job took this directory over"));  // and was never reported

  for (int restart = 0; restart < 2; ++restart) {
    const JournalState state = recover_journal(out);
    EXPECT_TRUE(has(state, 0));
    EXPECT_FALSE(has(state, 1));
    EXPECT_EQ(state.n_damaged, 0);
    ASSERT_EQ(state.notes.size(), 1u);
    EXPECT_THAT(state.notes[0], HasSubstr("written after the file was sealed, ignored"));
    EXPECT_EQ(open(), epoch + 1 + restart);
  }
}

TEST_F(EpochTest, AShardMadeAfterTheSealNeverCounts) {
  const int64_t old = open();
  open();
  EXPECT_THAT(message_of([&] { write(old, 5, 0, 3); }), HasSubstr("took this directory over"));
  EXPECT_EQ(recover_journal(out).done.size(), 0u);
  open();
  EXPECT_EQ(recover_journal(out).done.size(), 0u);
}

// A writer that is alive while another job recovers: what it reported as committed before the next epoch's number was taken
// is within the seal, though the other job had already read past it.
TEST_F(EpochTest, ACommitBetweenRecoveryAndTheNextEpochIsKept) {
  const int64_t old = open();
  JournalWriter alive(out, old, 0);
  alive.append(entry_at(0));
  alive.commit();
  const JournalState state = recover_journal(out);
  alive.append(entry_at(1));
  EXPECT_EQ(alive.commit(), 2);
  write(old, 1, 2, 3);
  open_epoch(out, state, "{}");
  const JournalState after = recover_journal(out);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(has(after, i)) << i;
}

TEST_F(EpochTest, TheSealEndsAfterTheLastGoodLine) {
  write(open(), 0, 0, 2);
  const ShardName name{1, 0, 0};
  const auto good = std::filesystem::file_size(shard_path(out, name));
  write_file(shard_path(out, name), read_file(shard_path(out, name)) + "torn by a kill");
  open();
  EXPECT_EQ(read_epochs(out).length_of(name), good);
  EXPECT_EQ(recover_journal(out).n_damaged, 0);  // the torn end is outside now
  append_raw(name, 9);
  EXPECT_FALSE(has(recover_journal(out), 9));
}

TEST_F(EpochTest, ANumberThatWasTakenButNotCompletedSealsNothing) {
  write(open(), 0, 0, 2);
  for (const std::string& torn : {std::string(), std::string(R"({"epoch":2,"sealed":null})"), std::string(R"({"epoch":2,"sea)"),
                                  std::string(R"({"epoch":2,"sealed":{},"crc":"00000000"})"), std::string(100, '\0'),
                                  std::string(R"({"epoch":2,"sealed":{"x":1},"crc":1})")}) {
    write_file(epoch_path(out, 2), torn);
    const JournalState state = recover_journal(out);
    EXPECT_EQ(state.done.size(), 2u) << torn;
    EXPECT_EQ(state.last_epoch, 2);
  }
  EXPECT_EQ(open(), 3);
  EXPECT_EQ(recover_journal(out).done.size(), 2u);
}

TEST_F(EpochTest, ADamagedNewestFileLeavesTheOneBeforeInForce) {
  write(open(), 0, 0, 2);
  write(open(), 0, 2, 4);
  open();
  std::string bytes = read_file(epoch_path(out, 3));
  bytes[bytes.find("e0002")] = 'f';
  write_file(epoch_path(out, 3), bytes);
  append_raw({1, 0, 0}, 8);
  const JournalState state = recover_journal(out);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(has(state, i)) << i;
  EXPECT_FALSE(has(state, 8));
}

TEST_F(EpochTest, ALostShardIsReportedAndRunsAgain) {
  write(open(), 0, 0, 2);
  write(1, 1, 2, 4);
  open();
  std::filesystem::remove(shard_path(out, {1, 0, 0}));
  std::filesystem::resize_file(shard_path(out, {1, 1, 0}), 10);
  const JournalState state = recover_journal(out);
  EXPECT_EQ(state.done.size(), 0u);
  EXPECT_THAT(state.notes, testing::Contains(HasSubstr("e0001-w000.jsonl: the file is gone")));
  EXPECT_THAT(state.notes, testing::Contains(AllOf(HasSubstr("e0001-w001.jsonl"), HasSubstr("are missing at its end"))));
}

}  // namespace
}  // namespace lockstep
