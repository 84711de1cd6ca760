// The step between the QKV projection and attention: head norms, rotation, and keys and values into their pages. Raw pointers,
// dims, stream last; no include of src/.
//
// A page holds 16 positions of all kv heads of one layer, bf16: [n_kv_heads][keys 16, values 16][head_dim]. The 16-byte pieces
// of a row lie where `place_of_piece` says, so that a tile [16][head_dim] is copied to shared memory as it is.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace lockstep::kernels {

inline constexpr int kPagePositions = 16;

// Pieces of 8 values are swizzled within their row so that, in shared memory, eight rows of a column of pieces lie in eight
// different banks. It repeats every eight rows. head_dim is a power of two, at least 16.
__host__ __device__ constexpr int place_of_piece(int head_dim, int row, int piece) {
  const int spread = head_dim < 64 ? head_dim / 8 : 8;
  return piece ^ (row * spread / 8 & (spread - 1));
}

struct RopeKv {
  __nv_bfloat16* qkv;  // [n_tokens, (n_heads + 2 n_kv_heads) head_dim]: q heads, k heads, v heads; q is changed in place
  int qkv_stride;
  const float *q_norm, *k_norm;  // [head_dim] or null
  float eps;
  const float* rope;                            // [n_positions, head_dim]: cosines, then sines, of head_dim / 2 frequencies
  int n_tokens, n_heads, n_kv_heads, head_dim;  // head_dim 16, 32, 64, 128 or 256
  __nv_bfloat16* pages;
  const int32_t* positions;    // [n_tokens]
  const int32_t* token_pages;  // [n_tokens]  page of each token; below 0: its keys and values aren't kept
};

// In f32, rounded once at the end; with norms the normalised value is rounded before its weight, as rms_norm does. Halves are
// rotated: (i, i + head_dim / 2). Reads and writes each element of qkv once.
cudaError_t rope_store_kv(const RopeKv& args, cudaStream_t stream);

}  // namespace lockstep::kernels
