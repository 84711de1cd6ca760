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

TEST(SwapBytes, AreAskedForOrByDefaultAGpus) {
  RunOptions cpu, gpu;
  cpu.device = "cpu", gpu.device = "cuda";
  EXPECT_EQ(swap_bytes(cpu, 1), 0u);
  EXPECT_GT(swap_bytes(gpu, 1), 0u);
  EXPECT_LE(swap_bytes(gpu, 1), uint64_t{16} << 30);
  EXPECT_LT(swap_bytes(gpu, 1000000), uint64_t{1} << 30) << "a quarter of what the node has, shared by its ranks";
  for (RunOptions* options : {&cpu, &gpu})
    for (const uint64_t bytes : {uint64_t{0}, uint64_t{5} << 40}) {
      options->swap_memory = bytes;
      EXPECT_EQ(swap_bytes(*options, 8), bytes);
    }
}

TEST(SequencesAtATime, OnAGpuByTheInput) {
  const RunOptions given;
  RunOptions gpu, cpu;
  gpu.device = "cuda", gpu.max_sequences = 512;
  cpu.device = "cpu", cpu.max_sequences = 64;
  // One line of 1000 tokens and n of 500.
  const auto n_for = [&](const RunOptions& asked, const RunOptions& options, uint32_t n, Mesh mesh = {}) {
    const std::vector<InputLine> lines = {{.n_answers = 1, .max_tokens = 1000}, {.n_answers = n, .max_tokens = 500}};
    return sequences_at_a_time(asked, options, mesh, lines, std::vector<uint32_t>{0, 1});
  };
  EXPECT_EQ(n_for(given, gpu, 788), 395);
  EXPECT_EQ(n_for(given, gpu, 788 * 2 + 2, {.dp = 2}), 395);
  EXPECT_EQ(n_for(given, gpu, 10), 256) << "fewer would save nothing";
  EXPECT_EQ(n_for(given, gpu, 100'000), 512);
  RunOptions stages = gpu;  // three parts take turns
  stages.max_sequences = most_sequences(given, gpu, {.pp = 2});
  EXPECT_EQ(stages.max_sequences, 1536);
  EXPECT_EQ(n_for(given, stages, 788, {.pp = 2}), 395);
  EXPECT_EQ(n_for(given, stages, 788 * 2 + 24, {.pp = 2}), 801);
  EXPECT_EQ(n_for(given, stages, 100'000, {.pp = 2}), 1536);
  EXPECT_EQ(most_sequences(given, cpu, {.pp = 2}), 64);
  EXPECT_EQ(n_for(given, cpu, 10), 64);
  RunOptions asked, options = gpu;
  asked.max_sequences = options.max_sequences = 50;
  EXPECT_EQ(n_for(asked, options, 788), 50);
  EXPECT_EQ(most_sequences(asked, options, {.pp = 2}), 50);
  asked.max_sequences = options.max_sequences = 1000;
  EXPECT_EQ(n_for(asked, options, 10), 1000);
  EXPECT_EQ(sequences_at_a_time(given, gpu, {}, {}, {}), 256);
}

}  // namespace
}  // namespace lockstep
