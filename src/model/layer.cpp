#include "model/layer.h"

#include <cmath>

namespace lockstep {

std::vector<Range> parts_of_step(int64_t n_rows, const Communicator& tp) {
  constexpr int64_t kUnit = 128;  // rows of a product's tiles
  const int64_t half = (n_rows / 2 + kUnit - 1) / kUnit * kUnit;
  if (n_rows < tp.rows_beside() || half >= n_rows) return {{0, n_rows}};
  return {{0, half}, {half, n_rows}};
}

void attend(const LayerContext& c, const LayerWeights& w, const Activations::Step& a, KvPages kv, int32_t window, bool first) {
  const Shard& s = c.shard;
  const float eps = c.config.rms_eps;
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.config.head_dim)));
  for (const Range part : c.parts) {
    const TensorView normed = a.normed.part(part), residual = a.residual.part(part);
    if (!first && c.parts.size() > 1) c.tp.end_gather();
    if (first)
      c.ops.rms_norm(normed, residual, w.attn_norm.view, eps);
    else
      c.ops.add_rms_norm(normed, residual, a.delta.part(part), w.attn_norm.view, eps);
    c.ops.linear(a.qkv.part(part), normed, w.qkv);
  }
  c.ops.rope_store_kv(a.qkv, w.q_norm.view, w.k_norm.view, eps, c.rope, s.heads, kv, c.batch);
  c.ops.attention(a.attn.columns(s.mine(s.attn_cols)), a.qkv, s.heads, kv, scale, window, c.batch);
}

void feed_forward(const LayerContext& c, const LayerWeights& w, const Activations::Step& a) {
  const Shard& s = c.shard;
  const TensorView my_delta = a.delta.columns(s.mine(s.hidden_cols));
  const TensorView my_act = a.act.columns(s.mine(s.ffn_cols));
  const bool several = c.parts.size() > 1;
  const auto gather = [&](TensorView matrix, Range rows, std::span<const Range> columns) {
    several ? c.tp.begin_gather(matrix, rows, columns) : c.tp.all_gather(matrix, columns);
  };
  const auto gathered = [&] {
    if (several) c.tp.end_gather();
  };

  // h += Wo Attention(norm(h))
  for (const Range part : c.parts) gather(a.attn, part, s.attn_cols);
  for (const Range part : c.parts) {
    gathered();
    c.ops.linear(my_delta.part(part), a.attn.part(part), w.o);
    gather(a.delta, part, s.hidden_cols);
  }

  // h += Wdown (silu(Wgate x) * Wup x), x = norm(h)
  for (const Range part : c.parts) {
    const TensorView normed = a.normed.part(part), gate_up = a.gate_up.part(part);
    gathered();
    c.ops.add_rms_norm(normed, a.residual.part(part), a.delta.part(part), w.ffn_norm.view, c.config.rms_eps);
    c.ops.linear(gate_up, normed, w.gate_up);
    c.ops.silu_mul(my_act.part(part), gate_up);
    gather(a.act, part, s.ffn_cols);
  }
  for (const Range part : c.parts) {
    gathered();
    c.ops.linear(my_delta.part(part), a.act.part(part), w.down);
    gather(a.delta, part, s.hidden_cols);
  }
}

}  // namespace lockstep
