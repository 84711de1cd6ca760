#include "commands/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using Names = std::vector<std::vector<std::string>>;

// The device of each rank; {-1} where it is refused.
std::vector<int> devices(const Names& visible) {
  std::vector<int> all;
  for (size_t rank = 0; rank < visible.size(); ++rank) all.push_back(device_for(static_cast<int>(rank), visible, "node03"));
  return all;
}

std::string refusal(const Names& visible, int rank = 0) {
  try {
    device_for(rank, visible, "node03");
  } catch (const Error& e) {
    return concat(static_cast<int>(e.code), ": ", e.what());
  }
  return "";
}

TEST(DeviceFor, EachRankTakesTheGpuOfItsNumber) {
  EXPECT_THAT(devices({{"a"}}), ElementsAre(0));
  EXPECT_THAT(devices(Names(4, {"a", "b", "c", "d"})), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(devices(Names(2, {"a", "b", "c", "d"})), ElementsAre(0, 1));
}

TEST(DeviceFor, WhereTheLauncherShowsOneEachItIsTheFirst) { EXPECT_THAT(devices({{"a"}, {"b"}, {"c"}}), ElementsAre(0, 0, 0)); }

TEST(DeviceFor, ViewsThatDifferGiveGpusThatDiffer) {
  EXPECT_THAT(devices({{"a", "b"}, {"b", "a"}}), ElementsAre(0, 0));
  EXPECT_THAT(devices({{"a", "b"}, {"a", "c"}, {"c", "d"}}), ElementsAre(0, 1, 1));
  EXPECT_THAT(devices({{}, {"a"}, {}, {"a", "b"}}), ElementsAre(0, 0, 0, 1));  // some on the CPU: told elsewhere
}

TEST(DeviceFor, MoreRanksThanGpusAreRefusedOnEveryRank) {
  const Names shared(3, {"a", "b"});
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(
        refusal(shared, rank),
        "2: node03: 3 ranks, 2 GPUs, and each rank needs one that no other has: start fewer ranks a node, or --device cpu");
  EXPECT_THAT(refusal({{"a"}, {"a"}}), ::testing::HasSubstr("2 ranks, 1 GPUs"));  // the launcher gave one to both
}

}  // namespace
}  // namespace lockstep
