// The matrices a step writes, taken once for the largest step: [max_batch_tokens, ...]. Read through the views of a step.
#pragma once

#include <cstdint>

#include "checkpoint/model_config.h"
#include "model/shard.h"
#include "ops/ops.h"

namespace lockstep {

class Activations {
 public:
  Activations(const ModelConfig& config, const Shard& shard, DType dtype, int64_t max_tokens, int64_t max_samples, Ops& ops);

  // Views of the first n rows.
  struct Step {
    TensorView residual, normed, delta;  // [n_tokens, hidden]
    TensorView qkv;                      // [n_tokens, (n_heads_local + 2 n_kv_local) head_dim]
    TensorView attn;                     // [n_tokens, n_heads head_dim], all ranks' columns
    TensorView gate_up;                  // [n_tokens, 2 ffn_local]
    TensorView act;                      // [n_tokens, ffn], all ranks' columns
    // The rows that get logits:
    TensorView last, last_delta, last_normed;  // [n_samples, hidden]
    TensorView last_attn;                      // [n_samples, n_heads head_dim]
    TensorView logits;                         // [n_samples, vocab] f32
  };
  Step of(int64_t n_tokens, int64_t n_samples) const;
  // A step of those rows alone: its residual, delta and attn are `last`, `last_delta` and `last_attn`.
  Step of_last(int64_t n_samples) const;
  size_t bytes() const;

 private:
  Buffer buffers_[12];
  Step all_;
};

}  // namespace lockstep
