#include "commands/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "checkpoint/checkpoint.h"
#include "model/weights.h"
#include "support/tiny_model.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Nodes with so many ranks each, filled one after the other; a model of so many bytes that divides evenly; ranks with 10 bytes.
LayoutFacts facts(const std::vector<int>& ranks_of_node, uint64_t model_bytes, int64_t n_kv_heads = 8, int64_t n_layers = 32) {
  LayoutFacts f;
  for (size_t node = 0; node < ranks_of_node.size(); ++node)
    f.node_of_rank.insert(f.node_of_rank.end(), ranks_of_node[node], static_cast<int>(node));
  f.rank_bytes = 10;
  f.n_kv_heads = n_kv_heads, f.n_layers = n_layers;
  f.bytes_needed = [model_bytes](int tp, int pp) { return (model_bytes + tp * pp - 1) / (tp * pp); };
  return f;
}

// "tp 2 pp 1 dp 4", or the error.
std::string layout(const LayoutFacts& f, const RunOptions& options = {}) {
  try {
    const Mesh mesh = choose_layout(options, f);
    return concat("tp ", mesh.tp, " pp ", mesh.pp, " dp ", mesh.dp);
  } catch (const Error& e) {
    return concat(static_cast<int>(e.code), ": ", e.what());
  }
}
RunOptions given(std::optional<int> tp, std::optional<int> pp, std::optional<int> dp) {
  RunOptions options;
  options.tp = tp, options.pp = pp, options.dp = dp;
  return options;
}
constexpr std::nullopt_t open = std::nullopt;

TEST(Layout, AModelThatFitsOneRankIsReplicated) {
  EXPECT_EQ(layout(facts({1}, 10)), "tp 1 pp 1 dp 1");
  EXPECT_EQ(layout(facts({8}, 10)), "tp 1 pp 1 dp 8");
  EXPECT_EQ(layout(facts({4, 4, 4}, 10)), "tp 1 pp 1 dp 12");
  EXPECT_EQ(layout(facts({3, 5}, 10)), "tp 1 pp 1 dp 8");
}

TEST(Layout, ElseTheFewestTensorRanksInsideANode) {
  EXPECT_EQ(layout(facts({8}, 11)), "tp 2 pp 1 dp 4");
  EXPECT_EQ(layout(facts({8}, 20)), "tp 2 pp 1 dp 4");
  EXPECT_EQ(layout(facts({8}, 21)), "tp 4 pp 1 dp 2");
  EXPECT_EQ(layout(facts({8}, 80)), "tp 8 pp 1 dp 1");
  EXPECT_EQ(layout(facts({4, 4}, 40)), "tp 4 pp 1 dp 2");
}

TEST(Layout, ThenStagesAcrossNodes) {
  EXPECT_EQ(layout(facts({4, 4}, 41)), "tp 4 pp 2 dp 1");
  EXPECT_EQ(layout(facts({4, 4, 4, 4}, 80)), "tp 4 pp 2 dp 2");
  EXPECT_EQ(layout(facts({4, 4, 4, 4}, 81)), "tp 4 pp 4 dp 1");
  EXPECT_EQ(layout(facts({1, 1}, 20)), "tp 1 pp 2 dp 1");
  EXPECT_EQ(layout(facts({3, 3}, 60)), "tp 3 pp 2 dp 1");
  EXPECT_EQ(layout(facts({3, 5}, 20)), "tp 1 pp 2 dp 4");  // ranks 2 and 3 are neighbours on two nodes
}

TEST(Layout, TheModelLimitsBoth) {
  EXPECT_EQ(layout(facts({8}, 40, 2)), "tp 2 pp 2 dp 2");  // 2 kv heads
  EXPECT_EQ(layout(facts({8}, 80, 3)), "tp 2 pp 4 dp 1");  // 3 kv heads, 3 does not divide 8
  EXPECT_EQ(layout(facts({1, 1, 1, 1}, 40, 8, 4)), "tp 1 pp 4 dp 1");
  EXPECT_THAT(layout(facts({1, 1, 1, 1}, 40, 8, 3)), HasSubstr("no layout of 4 ranks"));
}

TEST(Layout, RanksDealtOutRoundTheNodesHaveNoTensorNeighbours) {
  LayoutFacts f = facts({4}, 20);
  f.node_of_rank = {0, 1, 0, 1};
  EXPECT_EQ(layout(f), "tp 1 pp 2 dp 2");
  EXPECT_TRUE(tp_spans_nodes({.dp = 2, .pp = 1, .tp = 2}, f.node_of_rank));
  EXPECT_FALSE(tp_spans_nodes({.dp = 2, .pp = 2, .tp = 1}, f.node_of_rank));
  EXPECT_FALSE(tp_spans_nodes({.dp = 1, .pp = 2, .tp = 2}, {7, 7, 3, 3}));
}

TEST(Layout, WhatIsGivenStays) {
  EXPECT_EQ(layout(facts({8}, 10), given(4, open, open)), "tp 4 pp 1 dp 2");
  EXPECT_EQ(layout(facts({8}, 80), given(4, open, open)), "tp 4 pp 2 dp 1");
  EXPECT_EQ(layout(facts({8}, 10), given(open, 2, open)), "tp 1 pp 2 dp 4");
  EXPECT_EQ(layout(facts({8}, 40), given(open, 2, open)), "tp 2 pp 2 dp 2");
  EXPECT_EQ(layout(facts({8}, 10), given(open, open, 2)), "tp 4 pp 1 dp 2");
  EXPECT_EQ(layout(facts({4, 4}, 10), given(open, open, 1)), "tp 4 pp 2 dp 1");  // tp 8 would span the nodes
  EXPECT_EQ(layout(facts({4, 4}, 10), given(8, open, open)), "tp 8 pp 1 dp 1");  // asked for
  EXPECT_EQ(layout(facts({8}, 1000), given(2, 2, 2)), "tp 2 pp 2 dp 2");         // whatever it needs
  EXPECT_EQ(layout(facts({1}, 1000)), "tp 1 pp 1 dp 1");                         // there is no other
  EXPECT_EQ(layout(facts({8}, 10, 2), given(4, open, open)), "tp 4 pp 1 dp 2");  // make_shard has the numbers
}

TEST(Layout, WhatDoesNotComeOutIsRefused) {
  EXPECT_EQ(layout(facts({4}, 10), given(3, open, open)), "2: --tp 3 makes 3 ranks, the job has 4 (tp x pp x dp = ranks)");
  EXPECT_EQ(layout(facts({4}, 10), given(2, 2, 2)),
            "2: --tp 2 --pp 2 --dp 2 makes 8 ranks, the job has 4 (tp x pp x dp = ranks)");
  EXPECT_EQ(layout(facts({8}, 10), given(2, 2, 1)),
            "2: --tp 2 --pp 2 --dp 1 makes 4 ranks, the job has 8 (tp x pp x dp = ranks)");
  EXPECT_THAT(layout(facts({4}, 81), given(open, 2, open)), HasSubstr("2: --pp 2: no layout of 4 ranks"));
  EXPECT_THAT(layout(facts({4}, 41)), AllOf(HasSubstr("2: no layout of 4 ranks holds the model"), HasSubstr("--tp 4 --pp 1"),
                                            HasSubstr("needs 11 B"), HasSubstr("there are 10 B")));
}

// What decide_layout reckons with is what loading takes, but for norms and buffers' ends.
TEST(Layout, ExpectedBytesAreThoseOfLoading) {
  const std::string directory = ::testing::TempDir() + "/lockstep_layout_test";
  std::filesystem::create_directories(directory);
  for (const bool tied : {false, true}) {
    write_tiny_model({.n_layers = 4, .hidden = 128, .n_heads = 8, .n_kv_heads = 4, .ffn = 512, .vocab = 1024, .tied = tied},
                     directory);
    const auto checkpoint = Checkpoint::open(directory);
    const auto ops = make_cpu_ops({});
    for (const Mesh mesh :
         {Mesh{.dp = 1, .pp = 1, .tp = 1}, Mesh{.dp = 1, .pp = 1, .tp = 2}, Mesh{.dp = 1, .pp = 2, .tp = 1}}) {
      const Shard shard = make_shard(checkpoint->config(), mesh, {0, 0, 0}, 1024);
      NodeReader reader;
      const Weights weights = load_weights(*checkpoint, shard, DType::bf16, 64, *ops, reader);
      const auto loaded = static_cast<double>(weights.bytes);
      const auto expected = static_cast<double>(expected_weight_bytes(checkpoint->config(), shard, DType::bf16, 64));
      EXPECT_NEAR(expected / loaded, 1, 0.02) << mesh.tp << mesh.pp << tied;
      const LayerWeights& layer = weights.layers.front();
      std::vector<const LinearWeight*> matrices{&layer.qkv, &layer.o, &layer.gate_up, &layer.down};
      if (shard.last_stage) matrices.push_back(&weights.lm_head);
      const auto shapes = linear_shapes(checkpoint->config(), shard, DType::bf16, 100, 10);
      ASSERT_EQ(shapes.size(), matrices.size());
      for (size_t i = 0; i < shapes.size(); ++i) {
        EXPECT_EQ(std::pair(shapes[i].n_out, shapes[i].k), std::pair(matrices[i]->n_out, matrices[i]->k)) << i;
        EXPECT_EQ(shapes[i].out, i < kLayerShapes ? DType::bf16 : DType::f32) << i;
        EXPECT_EQ(shapes[i].most_rows, i < kLayerShapes ? 100 : 10) << i;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
