#include "model/layer.h"

#include <cmath>

namespace lockstep {

void run_layer(const LayerContext& c, const LayerWeights& w, const Activations::Step& a, KvPages kv, int32_t window,
               bool first) {
  const Shard& s = c.shard;
  const float eps = c.config.rms_eps;
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.config.head_dim)));
  const TensorView my_attn = a.attn.columns(s.mine(s.attn_cols));
  const TensorView my_delta = a.delta.columns(s.mine(s.hidden_cols));
  const TensorView my_act = a.act.columns(s.mine(s.ffn_cols));

  // h += Wo Attention(norm(h))
  if (first)
    c.ops.rms_norm(a.normed, a.residual, w.attn_norm.view, eps);
  else
    c.ops.add_rms_norm(a.normed, a.residual, a.delta, w.attn_norm.view, eps);
  c.ops.linear(a.qkv, a.normed, w.qkv);
  c.ops.rope_store_kv(a.qkv, w.q_norm.view, w.k_norm.view, eps, c.rope, s.heads, kv, c.batch);
  c.ops.attention(my_attn, a.qkv, s.heads, kv, scale, window, c.batch);
  c.tp.all_gather(a.attn, s.attn_cols);
  c.ops.linear(my_delta, a.attn, w.o);
  c.tp.all_gather(a.delta, s.hidden_cols);

  // h += Wdown (silu(Wgate x) * Wup x), x = norm(h)
  c.ops.add_rms_norm(a.normed, a.residual, a.delta, w.ffn_norm.view, eps);
  c.ops.linear(a.gate_up, a.normed, w.gate_up);
  c.ops.silu_mul(my_act, a.gate_up);
  c.tp.all_gather(a.act, s.ffn_cols);
  c.ops.linear(my_delta, a.act, w.down);
  c.tp.all_gather(a.delta, s.hidden_cols);
}

}  // namespace lockstep
