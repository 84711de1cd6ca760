// One decoder layer of the Llama kind (Llama, Mistral, Qwen2, Qwen3): the maths of the model, in one screen.
#pragma once

#include <span>
#include <vector>

#include "comm/communicator.h"
#include "model/activations.h"
#include "model/shard.h"
#include "model/weights.h"
#include "ops/ops.h"

namespace lockstep {

struct LayerContext {
  const ModelConfig& config;
  const Shard& shard;
  const DeviceBatch& batch;
  TensorView rope;  // f32 [max_model_len, head_dim]
  Ops& ops;
  Communicator& tp;
  std::span<const Range> parts;  // of the batch's rows: parts_of_step
};

// The rows in one part, or in two that take turns where a gather of one can go on beside the products of the other.
std::vector<Range> parts_of_step(int64_t n_rows, const Communicator& tp);

// A layer's first half: the tokens' keys and values into kv, this rank's columns of a.attn.
// In: the residual stream in a.residual, and in a.delta what the layer before adds to it (nothing if `first`); of several parts
// a.delta's gathers are begun.
void attend(const LayerContext& c, const LayerWeights& w, const Activations::Step& a, KvPages kv, int32_t window, bool first);

// A layer's second half, each row by itself. In: a.residual and this rank's columns of a.attn. Out: the residual stream in
// a.residual and a.delta; of several parts the gathers of a.delta are begun, and each wants end_gather. Collective over tp.
void feed_forward(const LayerContext& c, const LayerWeights& w, const Activations::Step& a);

}  // namespace lockstep
