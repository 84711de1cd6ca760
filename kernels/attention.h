// Paged attention of a whole step, prefill and decode alike. Raw pointers, dims, stream last; no include of src/. Pages as in rope_kv.h.
//
// A query row's bits depend on its position, its values and its KV alone: the positions it sees are cut into chunks of 64 from position 0 on.
// A chunk's softmax is its own (e^(score - the chunk's largest); rounded to bf16 for the product with the values, summed before that), and
// chunks are merged in order. A position that a row doesn't see adds exact zeros. So it makes no difference which rows share a block, or
// which warp computes a chunk.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace lockstep::kernels {

inline constexpr int kKvTile = 16;  // kPagePositions
inline constexpr int kKvChunk = 64;
inline constexpr int kFewRows = 16;    // a sequence with no more query rows a kv head (new tokens x group) is a `few` one
inline constexpr int kTileRows = 128;  // query rows of one block otherwise

struct QueryTile {
  int32_t sequence, first_row;  // rows are (new token, head of the group), counted through; a multiple of kTileRows
};

struct Attention {
  __nv_bfloat16* out;  // [n_tokens, n_heads head_dim]
  int out_stride;
  const __nv_bfloat16* qkv;  // q heads first; rotated
  int qkv_stride;
  int n_heads, n_kv_heads, head_dim;  // head_dim 16, 32, 64 or 128
  const __nv_bfloat16* pages;         // of this layer
  float scale;
  int window;  // 0: none; else a token sees itself and window - 1 before it
  const int32_t *q_offsets, *kv_lengths, *page_offsets, *page_ids;  // of the StepBatch
  const int32_t* each;  // [n_each]  sequences of one new token, one warp to each; below 0: none
  int n_each;
  const int32_t* few;  // [n_few]  sequences of few rows, four warps to each; below 0: none
  int n_few, few_rows;  // few_rows: at least the rows of any of them, at most kFewRows; the less, the more of them at a time
  const QueryTile* tiles;  // [n_tiles]  of the other sequences
  int n_tiles;
};

bool attention_supports(int head_dim);

// Each launches the kernel of its list, if that holds anything; in any order, or at once.
cudaError_t attend_tiles(const Attention& args, cudaStream_t stream);
cudaError_t attend_few(const Attention& args, cudaStream_t stream);
cudaError_t attend_each(const Attention& args, cudaStream_t stream);

}  // namespace lockstep::kernels
