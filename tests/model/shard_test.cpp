#include "model/shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

std::vector<int64_t> sizes_of(const std::vector<Range>& ranges) {
  std::vector<int64_t> sizes;
  for (const Range& range : ranges) sizes.push_back(range.size());
  return sizes;
}

ModelConfig shape(int64_t n_layers, int64_t hidden, int64_t ffn, int64_t n_heads, int64_t n_kv_heads, int64_t head_dim,
                  int64_t vocab) {
  ModelConfig c;
  c.n_layers = n_layers, c.hidden = hidden, c.ffn = ffn, c.n_heads = n_heads, c.n_kv_heads = n_kv_heads, c.head_dim = head_dim;
  c.vocab = vocab;
  return c;
}

const ModelConfig kLlama8B = shape(32, 4096, 14336, 32, 8, 128, 128256);  // a layer 218 M parameters, the head 525 M
const ModelConfig kSmolLM2 = shape(30, 576, 1536, 9, 3, 64, 49152);       // a layer 3,538,944, the head 8 layers exactly

TEST(StageLayers, AHeadThatCostsNothingLeavesAnEvenDivision) {
  const ModelConfig c = shape(6, 64, 96, 4, 2, 16, 1);
  EXPECT_THAT(sizes_of(stage_layers(c, 1)), ElementsAre(6));
  EXPECT_THAT(sizes_of(stage_layers(c, 3)), ElementsAre(2, 2, 2));
}

TEST(StageLayers, TheHeadCounts) {
  EXPECT_THAT(sizes_of(stage_layers(kLlama8B, 2)), ElementsAre(16, 16));      // 16 + 0.8 against 17
  EXPECT_THAT(sizes_of(stage_layers(kLlama8B, 4)), ElementsAre(8, 8, 8, 8));  // 8 + 0.8 against 9
  EXPECT_THAT(sizes_of(stage_layers(kLlama8B, 8)), Each(4));
  EXPECT_THAT(sizes_of(stage_layers(kSmolLM2, 2)), ElementsAre(16, 14));
  EXPECT_THAT(sizes_of(stage_layers(kSmolLM2, 4)), ElementsAre(8, 8, 8, 6));
  EXPECT_THAT(sizes_of(stage_layers(kSmolLM2, 5)), ElementsAre(7, 7, 6, 6, 4));  // 4 + 2.7 against 7
}

TEST(StageLayers, EachStageHasALayer) {
  EXPECT_THAT(sizes_of(stage_layers(kLlama8B, 32)), Each(1));
  EXPECT_THAT(sizes_of(stage_layers(kSmolLM2, 30)), Each(1));
  EXPECT_THAT(sizes_of(stage_layers(kSmolLM2, 29)).back(), 1);
}

// No other division has a less busy stage, and the ranges follow each other. All divisions of 9 layers in 3 are tried.
TEST(StageLayers, NoDivisionIsBetter) {
  for (const int64_t vocab : {1, 100, 700, 1500, 3000, 100000}) {
    const ModelConfig c = shape(9, 64, 96, 4, 2, 16, vocab);
    const int64_t layer = 3 * 64 * (2 * 64 + 2 * 32 + 3 * 96), head = 64 * vocab;
    const auto busiest = [&](int64_t a, int64_t b, int64_t last) {
      return std::max(std::max(a, b) * layer, last * layer + head);
    };
    const std::vector<Range> stages = stage_layers(c, 3);
    EXPECT_EQ(stages[0].begin, 0);
    EXPECT_EQ(stages[0].end, stages[1].begin);
    EXPECT_EQ(stages[1].end, stages[2].begin);
    EXPECT_EQ(stages[2].end, 9);
    const int64_t ours = busiest(stages[0].size(), stages[1].size(), stages[2].size());
    for (int64_t a = 1; a <= 7; ++a)
      for (int64_t b = 1; a + b <= 8; ++b) EXPECT_LE(ours, busiest(a, b, 9 - a - b)) << vocab << ": " << a << ' ' << b;
  }
}

TEST(StageLayers, AShardHasItsStages) {
  const Mesh mesh{.dp = 1, .pp = 2, .tp = 1};
  EXPECT_EQ(make_shard(kLlama8B, mesh, {0, 0, 0}, 128256).layers.size(), 16);
  EXPECT_EQ(make_shard(kLlama8B, mesh, {0, 1, 0}, 128000).layers.begin, 16);  // the tokenizer's vocabulary changes nothing
}

}  // namespace
}  // namespace lockstep
