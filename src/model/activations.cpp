#include "model/activations.h"

namespace lockstep {

Activations::Activations(const ModelConfig& config, const Shard& shard, DType dtype, int64_t max_tokens, int64_t max_samples,
                         Ops& ops) {
  int n = 0;
  const auto take = [&](DType type, int64_t rows, int64_t cols) {
    buffers_[n] = ops.allocate(rows * cols * size_of(type));
    return buffers_[n++].matrix(type, rows, cols);
  };
  const int64_t hidden = config.hidden;
  all_.residual = take(dtype, max_tokens, hidden);
  all_.normed = take(dtype, max_tokens, hidden);
  all_.delta = take(dtype, max_tokens, hidden);
  all_.qkv = take(dtype, max_tokens, shard.heads.qkv_cols());
  all_.attn = take(dtype, max_tokens, config.n_heads * config.head_dim);
  all_.gate_up = take(dtype, max_tokens, 2 * shard.mine(shard.ffn_cols).size());
  all_.act = take(dtype, max_tokens, config.ffn);
  if (!shard.last_stage) max_samples = 0;
  all_.last = take(dtype, max_samples, hidden);
  all_.last_delta = take(dtype, max_samples, hidden);
  all_.last_normed = take(dtype, max_samples, hidden);
  all_.last_attn = take(dtype, max_samples, config.n_heads * config.head_dim);
  all_.logits = take(DType::f32, max_samples, shard.vocab);
}

Activations::Step Activations::of(int64_t n_tokens, int64_t n_samples) const {
  return {.residual = all_.residual.top(n_tokens),
          .normed = all_.normed.top(n_tokens),
          .delta = all_.delta.top(n_tokens),
          .qkv = all_.qkv.top(n_tokens),
          .attn = all_.attn.top(n_tokens),
          .gate_up = all_.gate_up.top(n_tokens),
          .act = all_.act.top(n_tokens),
          .last = all_.last.top(n_samples),
          .last_delta = all_.last_delta.top(n_samples),
          .last_normed = all_.last_normed.top(n_samples),
          .last_attn = all_.last_attn.top(n_samples),
          .logits = all_.logits.top(n_samples)};
}

Activations::Step Activations::of_last(int64_t n_samples) const {
  Step step = of(n_samples, n_samples);
  step.residual = step.last;
  step.delta = step.last_delta;
  step.attn = step.last_attn;
  return step;
}

size_t Activations::bytes() const {
  size_t sum = 0;
  for (const Buffer& buffer : buffers_) sum += buffer.bytes();
  return sum;
}

}  // namespace lockstep
