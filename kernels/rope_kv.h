// The step between the QKV projection and attention: head norms, rotation, and keys and values into their pages. Raw pointers, dims,
// stream last; no include of src/.
//
// A page holds 16 positions of all kv heads of one layer, bf16: [n_kv_heads][keys 16, values 16][head_dim].
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace lockstep::kernels {

inline constexpr int kPagePositions = 16;

struct RopeKv {
  __nv_bfloat16* qkv;  // [n_tokens, (n_heads + 2 n_kv_heads) head_dim]: q heads, k heads, v heads; q is changed in place
  int qkv_stride;
  const float *q_norm, *k_norm;  // [head_dim] or null
  float eps;
  const float* rope;  // [n_positions, head_dim]: cosines, then sines, of head_dim / 2 frequencies
  int n_tokens, n_heads, n_kv_heads, head_dim;  // head_dim 16, 32, 64, 128 or 256
  __nv_bfloat16* pages;
  const int32_t* positions;      // [n_tokens]
  const int32_t* token_pages;    // [n_tokens]  page of each token; below 0: its keys and values aren't kept
};

// In f32, rounded once at the end; with norms the normalised value is rounded before its weight, as rms_norm does. Halves are rotated:
// (i, i + head_dim / 2). Reads and writes each element of qkv once.
cudaError_t rope_store_kv(const RopeKv& args, cudaStream_t stream);

}  // namespace lockstep::kernels
