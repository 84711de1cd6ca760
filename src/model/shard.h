// Which part of the model a rank holds: layers by pipeline stage, output columns of every projection by tensor rank.
// Heads are divided in whole kv groups (9 heads in 3 groups over 2 ranks: 6 + 3), the rest column by column, unevenly where it
// must be. Each dot product is done whole by one rank, so no sum depends on the number of ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/model_config.h"
#include "mesh/mesh.h"
#include "ops/ops.h"

namespace lockstep {

inline constexpr int64_t kVocabChunk = 256;  // vocabulary shards end on chunk borders

struct Shard {
  Place place;
  Range layers;  // of this stage
  bool first_stage = false, last_stage = false;
  int64_t vocab = 0;  // ids that can be sampled: the tokenizer's, where the model's rows are padded beyond them

  // [tp]: columns of each tensor rank, in the units of the gathered matrix.
  std::vector<Range> kv_heads;   // of n_kv_heads
  std::vector<Range> attn_cols;  // of n_heads * head_dim
  std::vector<Range> hidden_cols;
  std::vector<Range> ffn_cols;
  std::vector<Range> vocab_cols;

  HeadShape heads;        // of this rank
  Range q_rows, kv_rows;  // of this rank in q_proj, and in k_proj and v_proj

  Range mine(const std::vector<Range>& of_all) const { return of_all[place.tp]; }
};

// [pp]: the layers of each stage, at least one, so that the busiest stage has as little to do as can be. Counted in parameters:
// a layer has its projections, and half as much again for attention and what else isn't a product; the last stage has half of
// the head (hidden x vocab) too, since prompts need no logits but of their last token; looking up an embedding costs nothing.
// Of the divisions that are as good, the one with most layers on the last stage. 1 <= pp <= n_layers.
//   Llama-3.1-8B (a head counts 0.8 layers) over 2: 16 + 16;  over 4: 8 + 8 + 8 + 8;  SmolLM2-135M (2.7) over 2: 16 + 14
std::vector<Range> stage_layers(const ModelConfig& config, int pp);

// Throws Error (usage) with the numbers if the model can't be laid out so: more tensor ranks than kv heads, more stages than
// layers.
Shard make_shard(const ModelConfig& config, const Mesh& mesh, const Place& place, int64_t vocab);

}  // namespace lockstep
