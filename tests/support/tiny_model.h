// A small random model as a Hugging Face directory, for tests of the model, the engine and the program on machines without the
// golden data. The same parameters give the same bytes everywhere. Not for: quality; what it says is noise.
//   write_tiny_model({.family = "qwen3", .n_layers = 4}, directory);
#pragma once

#include <cstdint>
#include <string>

#include "tensor/tensor.h"

namespace lockstep {

struct TinyModel {
  std::string family = "llama";  // llama, mistral, qwen2, qwen3
  int64_t n_layers = 2, hidden = 64, n_heads = 4, n_kv_heads = 2, head_dim = 16, ffn = 96;
  int64_t vocab = 320;  // at least 260: the tokenizer has 4 special tokens (ids 0-3) and 256 bytes (id = byte + 4)
  bool tied = false;
  DType dtype = DType::bf16;
  uint64_t seed = 1;
  int64_t sliding_window = 0;  // mistral: all layers; qwen2, qwen3: all layers from the second on; 0: none
  int64_t n_shards = 1;        // 1: model.safetensors; more: model-0000i-of-0000n.safetensors and an index
  int64_t max_positions = 512;
};

inline constexpr int32_t kTinyEndOfText = 0, kTinyImStart = 1, kTinyImEnd = 2, kTinyPad = 3;  // eos: kTinyImEnd

// Into an existing directory. Throws Error.
void write_tiny_model(const TinyModel& model, const std::string& directory);

}  // namespace lockstep
