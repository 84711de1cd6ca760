// Which directories make one set of shards, and what they lack.
#include "commands/shards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Manifest manifest_of(const std::string& shard, const std::string& seed = "0") {
  Manifest m{1, {{"model", "m"}, {"--seed", seed}}};
  if (!shard.empty()) m.fields.push_back({kShardField, shard});
  return m;
}

ShardDirectory directory(const std::string& path, const std::string& shard, const std::string& seed = "0") {
  const Manifest m = manifest_of(shard, seed);
  return {path, m, shard_of(m)};
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    EXPECT_EQ(e.code, ExitCode::usage) << e.what();
    return e.what();
  }
  return "accepted";
}

TEST(Shards, NamesCountFromOne) {
  EXPECT_EQ(shard_name({1, 3}), "1/3");
  EXPECT_EQ(shard_name({0, 3}), "3/3");
  for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(shard_of(manifest_of(shard_name({i, 12}))), (InputShard{i, 12}));
  EXPECT_EQ(shard_of(manifest_of("")), (InputShard{0, 1}));
}

TEST(Shards, AManifestThatNamesNoneIsRefused) {
  for (const char* bad : {"0/3", "4/3", "1", "1/", "/3", "1/1", "a/3", "1/3x", "-1/3", "1/99999999999999999999"})
    EXPECT_THAT(refusal([&] { shard_of(manifest_of(bad)); }), HasSubstr(bad)) << bad;
}

TEST(Shards, WhatBelongsTogether) {
  using Directories = std::vector<ShardDirectory>;
  const auto together = [](const Directories& d) { return refusal([&] { check_together(d); }); };
  EXPECT_EQ(together({directory("a", "1/2"), directory("b", "2/2")}), "accepted");
  EXPECT_EQ(together({directory("a", "3/3"), directory("b", "1/3")}), "accepted") << "what is missing is another question";
  EXPECT_EQ(together({directory("a", ""), directory("b", "")}), "accepted");
  EXPECT_THAT(together({directory("a", "1/3"), directory("b", "2/3"), directory("c", "1/3")}),
              HasSubstr("a and c are both shard 1/3"));
  EXPECT_THAT(together({directory("a", "1/3"), directory("b", "2/4")}),
              AllOf(HasSubstr("a (shard 1/3)"), HasSubstr("b (shard 2/4)")));
  EXPECT_THAT(together({directory("a", ""), directory("b", "2/2")}), HasSubstr("a (all lines) and b (shard 2/2)"));
  EXPECT_THAT(together({directory("a", "1/2"), directory("b", "2/2", "7")}),
              AllOf(HasSubstr("a and b"), HasSubstr("--seed ('0' and '7')")));
}

TEST(Shards, MissingOnesThatHaveLines) {
  const std::vector<ShardDirectory> two_of_five = {directory("a", "2/5"), directory("b", "5/5")};
  EXPECT_THAT(missing_shards(two_of_five, 100), ElementsAre(1, 3, 4));
  EXPECT_THAT(missing_shards(two_of_five, 3), ElementsAre(1, 3)) << "three lines: nothing is for shard 4";
  EXPECT_THAT(missing_shards(std::vector{directory("a", "")}, 100), IsEmpty());
}

TEST(Shards, UnfinishedOnesAreNamed) {
  const std::vector<ShardDirectory> directories = {directory("a", "3/3"), directory("b", "1/3")};
  std::vector<InputLine> lines(8);
  for (uint64_t i = 0; i < lines.size(); ++i) lines[i].id = {i + 1, 0};  // of request number i + 1
  std::vector<JournalState> journals(2);
  for (const uint64_t number : {3, 6}) journals[0].done.add({number, 0}, {});
  for (const uint64_t number : {1, 4}) journals[1].done.add({number, 0}, {});
  EXPECT_EQ(unfinished_shards(directories, journals, lines), "b (shard 1/3) lacks 1 line");
  journals[1].done.add({7, 0}, {});
  EXPECT_EQ(unfinished_shards(directories, journals, lines), "");
  journals[0] = {};
  EXPECT_EQ(unfinished_shards(directories, journals, lines), "a (shard 3/3) lacks 2 lines");
}

}  // namespace
}  // namespace lockstep
