// The weights of this rank: its layers, its rows of each projection, read from the checkpoint straight into the layout of its
// Ops.
#pragma once

#include <vector>

#include "checkpoint/checkpoint.h"
#include "model/node_reader.h"
#include "model/shard.h"
#include "ops/ops.h"

namespace lockstep {

struct Vector {  // f32 [1, n] on the device, or empty
  Buffer data;
  TensorView view;
};

struct LayerWeights {
  Vector attn_norm, ffn_norm;  // [hidden]
  Vector q_norm, k_norm;       // [head_dim], or empty
  LinearWeight qkv;            // [(n_heads + 2 n_kv_heads) head_dim, hidden], local heads: q rows, then k, then v
  LinearWeight o;              // [hidden_local, n_heads head_dim]
  LinearWeight gate_up;        // [2 ffn_local, hidden], gate rows first
  LinearWeight down;           // [hidden_local, ffn]
};

struct Weights {
  Buffer embedding;  // [vocab, hidden] in the run's dtype, first stage only
  TensorView embedding_view;
  std::vector<LayerWeights> layers;  // [n_layers_local]
  Vector final_norm;                 // [hidden], last stage only
  LinearWeight lm_head;              // [vocab_local, hidden], last stage only
  Vector rope;                       // [max_model_len, head_dim]
  size_t bytes = 0;                  // of all the above
};

// A rank's projections: the kLayerShapes of each of its layers, then the head's if it has one. max_tokens, max_samples: the
// most rows of a step and of its logits.
constexpr size_t kLayerShapes = 4;  // qkv, o, gate_up, down
std::vector<LinearShape> linear_shapes(const ModelConfig& config, const Shard& shard, DType dtype, int64_t max_tokens,
                                       int64_t max_samples);

// About what load_weights will take of the device, without reading anything: all matrices; not norms and biases.
uint64_t expected_weight_bytes(const ModelConfig& config, const Shard& shard, DType dtype, int64_t max_model_len);

// Collective over the ranks that `reader` reads with: a fault of one is an Error of all of them.
Weights load_weights(const Checkpoint& checkpoint, const Shard& shard, DType dtype, int64_t max_model_len, Ops& ops,
                     NodeReader& reader);

}  // namespace lockstep
