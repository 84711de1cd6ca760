// How numbers lie in a model file: plain types and GGML's blocks, and their way to f32.
// Not for: activations (tensor/), matrix products (ops/).
//   dequantize(StoredType::q4_1, bytes, n_values, out);
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lockstep {

enum class StoredType : uint8_t {
  f32,
  f16,
  bf16,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  iq4_nl,  // blocks of 32 values
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
  iq4_xs,  // blocks of 256 values
};

struct BlockLayout {
  std::string_view name;
  int32_t values;  // of one block
  int32_t bytes;   // of one block
};

const BlockLayout& layout_of(StoredType type);

// `n_values` is a multiple of the block's. The result has the bits of the reference formulas evaluated in f32 without FMA.
void dequantize(StoredType type, const std::byte* blocks, int64_t n_values, float* out);

}  // namespace lockstep
