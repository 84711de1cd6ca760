#include "checkpoint/content.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "checkpoint/printable.h"

namespace lockstep {

namespace {

// Generous for every model of these families known today; they bound what a hostile config can make us compute.
constexpr int64_t kMaxLayers = 1024, kMaxHidden = 1 << 17, kMaxHeads = 1 << 12, kMaxHeadDim = 1 << 12, kMaxFfn = 1 << 20,
                  kMaxVocab = 1 << 22, kMaxPositions = std::numeric_limits<int32_t>::max();

void check_size(const std::string& origin, const char* field, int64_t value, int64_t limit) {
  if (value < 1 || value > limit)
    fail(ExitCode::unreadable, origin, ": ", field, " is ", value, ", between 1 and ", limit, " is possible");
}

void check_positive(const std::string& origin, const char* field, double value) {
  if (!(std::isfinite(value) && value > 0))
    fail(ExitCode::unreadable, origin, ": ", field, " is ", value, ", a positive number is expected");
}

}  // namespace

void check_model_config(const ModelConfig& c, const std::string& origin) {
  check_size(origin, "num_hidden_layers", c.n_layers, kMaxLayers);
  check_size(origin, "hidden_size", c.hidden, kMaxHidden);
  check_size(origin, "num_attention_heads", c.n_heads, kMaxHeads);
  check_size(origin, "num_key_value_heads", c.n_kv_heads, kMaxHeads);
  check_size(origin, "head_dim", c.head_dim, kMaxHeadDim);
  check_size(origin, "intermediate_size", c.ffn, kMaxFfn);
  check_size(origin, "vocab_size", c.vocab, kMaxVocab);
  check_size(origin, "max_position_embeddings", c.max_positions, kMaxPositions);
  if (c.n_heads % c.n_kv_heads != 0) {
    fail(ExitCode::unreadable, origin, ": num_attention_heads ", c.n_heads, " is not a multiple of num_key_value_heads ",
         c.n_kv_heads);
  }
  if (c.head_dim % 2 != 0) fail(ExitCode::unreadable, origin, ": head_dim ", c.head_dim, " is odd, RoPE turns pairs");
  check_positive(origin, "rms_norm_eps", c.rms_eps);
  check_positive(origin, "rope_theta", c.rope.theta);
  if (c.rope.scaling != RopeConfig::Scaling::none) check_positive(origin, "factor of the RoPE scaling", c.rope.factor);
  if (c.rope.scaling == RopeConfig::Scaling::llama3) {
    check_positive(origin, "low_freq_factor", c.rope.low_freq_factor);
    check_positive(origin, "high_freq_factor", c.rope.high_freq_factor);
    if (c.rope.high_freq_factor <= c.rope.low_freq_factor) {
      fail(ExitCode::unreadable, origin, ": high_freq_factor ", c.rope.high_freq_factor, " must be above low_freq_factor ",
           c.rope.low_freq_factor);
    }
    check_size(origin, "original_max_position_embeddings", c.rope.original_max_positions, kMaxPositions);
  }
  for (const float f : c.rope.frequency_factors) check_positive(origin, "rope_freqs.weight", f);
}

std::vector<TensorSpec> expected_tensors(const ModelConfig& c) {
  std::vector<TensorSpec> specs;
  const auto vector = [&](std::string name, int64_t n) { specs.push_back({std::move(name), 1, n, true}); };
  const auto projection = [&](const std::string& name, int64_t out, int64_t in, bool bias) {
    specs.push_back({name + ".weight", out, in, false});
    if (bias) vector(name + ".bias", out);
  };
  const int64_t q_rows = c.n_heads * c.head_dim, kv_rows = c.n_kv_heads * c.head_dim;
  projection("model.embed_tokens", c.vocab, c.hidden, false);
  for (int64_t i = 0; i < c.n_layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i);
    vector(layer + ".input_layernorm.weight", c.hidden);
    projection(layer + ".self_attn.q_proj", q_rows, c.hidden, c.qkv_bias);
    projection(layer + ".self_attn.k_proj", kv_rows, c.hidden, c.qkv_bias);
    projection(layer + ".self_attn.v_proj", kv_rows, c.hidden, c.qkv_bias);
    projection(layer + ".self_attn.o_proj", c.hidden, q_rows, c.o_bias);
    if (c.qk_norm) {
      vector(layer + ".self_attn.q_norm.weight", c.head_dim);
      vector(layer + ".self_attn.k_norm.weight", c.head_dim);
    }
    vector(layer + ".post_attention_layernorm.weight", c.hidden);
    projection(layer + ".mlp.gate_proj", c.ffn, c.hidden, c.mlp_bias);
    projection(layer + ".mlp.up_proj", c.ffn, c.hidden, c.mlp_bias);
    projection(layer + ".mlp.down_proj", c.hidden, c.ffn, c.mlp_bias);
  }
  vector("model.norm.weight", c.hidden);
  if (!c.tied_embeddings) projection("lm_head", c.vocab, c.hidden, false);
  return specs;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

std::string shape_text(const TensorSpec& spec) {
  return spec.vector ? shape_text(std::vector{spec.cols}) : shape_text(std::vector{spec.rows, spec.cols});
}

std::string list_names(const std::vector<std::string>& names, const std::string& what) {
  constexpr size_t kShown = 5;
  std::string text = concat(names.size(), " ", what, ": ");
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) text += (i ? ", " : "") + printable(names[i]);
  return names.size() > kShown ? text + ", ..." : text;
}

}  // namespace lockstep
