// One decoder layer of the Llama kind (Llama, Mistral, Qwen2, Qwen3): the maths of the model, in one screen.
#pragma once

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
};

// In: the residual stream in a.residual, and in a.delta what the layer before adds to it (nothing if `first`).
// Out: the same, of this layer. Collective over tp.
void run_layer(const LayerContext& c, const LayerWeights& w, const Activations::Step& a, KvPages kv, int32_t window,
               bool first);

}  // namespace lockstep
