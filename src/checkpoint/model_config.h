// What the engine must know of a model, whatever file it came from: sizes, switches between the families, RoPE, defaults for
// sampling. Plain values, checked when they leave the reader: sizes within limits, heads a multiple of kv heads, head_dim even.
// Not for: tensors (checkpoint.h), tokenizers (text/).
//   const ModelConfig& c = checkpoint->config();   c.n_heads * c.head_dim == rows of q_proj
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"

namespace lockstep {

struct RopeConfig {
  double theta = 10000;
  enum class Scaling { none, linear, llama3 } scaling = Scaling::none;
  double factor = 1, low_freq_factor = 1, high_freq_factor = 4;  // the last two: llama3 only
  int64_t original_max_positions = 0;                            // llama3 only
  std::vector<float> frequency_factors;  // [head_dim / 2] GGUF's rope_freqs.weight, or empty: inv_freq is divided by it
};

// generation_config.json: what a request gets where it is silent. Ranges are checked.
struct GenerationDefaults {
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k, max_new_tokens;
  std::vector<TokenId> eos_token_ids;  // all within the vocabulary
  std::optional<bool> do_sample;
};

struct ModelConfig {
  std::string family;  // "llama", "mistral", "qwen2", "qwen3"
  int64_t n_layers = 0, hidden = 0, n_heads = 0, n_kv_heads = 0, head_dim = 0, ffn = 0, vocab = 0, max_positions = 0;
  float rms_eps = 1e-6f;
  RopeConfig rope;
  bool tied_embeddings = false;  // lm_head.weight is embed_tokens.weight
  bool qkv_bias = false, o_bias = false, mlp_bias = false;
  bool qk_norm = false;          // RMSNorm over head_dim of q and k, before RoPE
  std::vector<int32_t> windows;  // [n_layers] sliding window of each layer, 0: full attention
  std::vector<TokenId> eos_token_ids;
  std::optional<TokenId> bos_token_id;
  GenerationDefaults generation;
};

}  // namespace lockstep
