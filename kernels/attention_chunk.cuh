// One warp, 16 or 32 query rows, one chunk of 64 positions: the piece that prefill and decode have in common, so that their
// bits are the same. Every operation beside the products is named with its rounding, so that the compiler fuses nothing by
// itself.
//
// Of 16 x 8 results a thread of lane l holds rows l / 4 and l / 4 + 8, columns 2 (l % 4) and the next: [0], [1] and [2], [3]
// (warp.cuh). Below, h is 0 for the upper and 1 for the lower of a thread's two rows.
#pragma once

#include "kernels/attention.h"
#include "kernels/rope_kv.h"
#include "kernels/warp.cuh"

namespace lockstep::kernels {

constexpr float kMinusInfinity = -__builtin_huge_valf();
__device__ inline float or_zero(float m) { return m == kMinusInfinity ? 0.0f : m; }  // nothing seen yet: e^(-inf - 0) = 0

__device__ inline uint32_t packed(float low, float high) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(low)) | uint32_t{__bfloat16_as_ushort(__float2bfloat16_rn(high))} << 16;
}

constexpr int kTilesInChunk = kKvChunk / kKvTile;

// Rows of kHeadDim values in shared memory are swizzled as a page's are.
template <int kHeadDim>
__device__ inline int at(int row, int piece) {
  return row * kHeadDim + place_of_piece(kHeadDim, row, piece) * 8;
}

// at(row, piece + 2 k) from at(row, piece), of pieces 0 and 1, so that four addresses serve all columns of a row.
template <int kHeadDim>
__device__ inline int columns_on(int at, int k) {
  return (at ^ k % 4 * 16) + k / 4 * 64;
}

// ---- keys and values ----

// Where a sequence's keys and values of one kv head lie.
struct KvSource {
  const __nv_bfloat16* pages;
  const int32_t* page_ids;
  int n_kv_heads, kv_head, length;

  // The keys, or the values, of a tile in a page: [kKvTile][kHeadDim], as they are to lie in shared memory.
  template <int kHeadDim>
  __device__ const __nv_bfloat16* part(int page, bool values) const {
    static_assert(kKvTile == kPagePositions);
    return pages + ((static_cast<size_t>(page) * n_kv_heads + kv_head) * 2 + values) * (kKvTile * kHeadDim);
  }
};

// Thread `thread` of `n_threads` asks for its share of the keys, or the values, of a tile; positions from `length` on become
// zeros.
template <int kHeadDim>
__device__ inline void load_tile(__nv_bfloat16* to, const KvSource& kv, bool values, int tile, int thread, int n_threads) {
  constexpr int kPieces = kHeadDim / 8;
  const int n_valid = kv.length - tile * kKvTile;
  const __nv_bfloat16* from = kv.part<kHeadDim>(n_valid > 0 ? kv.page_ids[tile] : 0, values);
#pragma unroll 2
  for (int i = thread; i < kKvTile * kPieces; i += n_threads) copy_async(to + i * 8, from + i * 8, i / kPieces < n_valid);
}

// ---- query rows ----

// kRowTiles times 16 rows of a warp, in shared memory; of each a thread works on two.
template <int kHeadDim, int kRowTiles>
struct QueryRows {
  const __nv_bfloat16* q;                       // [rows][kHeadDim], swizzled
  int row[kRowTiles];                           // of q, whose address this lane gives to load_matrices
  int first[kRowTiles][2], last[kRowTiles][2];  // positions seen; last -1: not a row
  int2 all_see;                                 // positions that every row here sees

  __device__ void load(uint32_t (&a)[4], int m, int k) const {  // columns 16 k .. of tile m
    load_matrices<false>(a, &q[at<kHeadDim>(row[m], 2 * k + threadIdx.x % 32 / 16)]);
  }
};

// ---- scores and weights of a chunk ----

// s += q . k for the 16 positions of a tile; [0] is the first eight.
template <int kHeadDim, int kRowTiles>
__device__ inline void add_products(float (&s)[kRowTiles][2][4], const uint32_t (&q)[kRowTiles][4], const __nv_bfloat16* keys,
                                    int k) {
  const int lane = threadIdx.x % 32, matrix = lane / 8, in_matrix = lane % 8;
  uint32_t b[4];
  load_matrices<false>(b, &keys[at<kHeadDim>(matrix / 2 * 8 + in_matrix, k * 2 + matrix % 2)]);
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
    mma(s[m][0], q[m], b[0], b[1]);
    mma(s[m][1], q[m], b[2], b[3]);
  }
}

// e^(score - largest score) in bf16, ready for the product with the values; their sum before that rounding, of this thread's
// columns until `close`; and the largest score, in powers of two.
template <int kRowTiles>
struct Weights {
  uint32_t p[kRowTiles][kTilesInChunk][4];
  float sum[kRowTiles][2], max[kRowTiles][2];

  template <class Rows>
  __device__ void take(float (&s)[kTilesInChunk][kRowTiles][2][4], const Rows& rows, int chunk, float scale) {
    const int lane = threadIdx.x % 32, begin = chunk * kKvChunk;
    const bool all = begin >= rows.all_see.x && begin + kKvChunk - 1 <= rows.all_see.y;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      if (!all) {
#pragma unroll
        for (int t = 0; t < kTilesInChunk; ++t)
#pragma unroll
          for (int i = 0; i < 8; ++i) {
            const int h = i / 2 % 2, position = begin + t * kKvTile + i / 4 * 8 + lane % 4 * 2 + i % 2;
            if (position < rows.first[m][h] || position > rows.last[m][h]) s[t][m][i / 4][i % 4] = kMinusInfinity;
          }
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float largest = kMinusInfinity;
#pragma unroll
        for (int t = 0; t < kTilesInChunk; ++t)
#pragma unroll
          for (int n = 0; n < 2; ++n) largest = fmaxf(largest, fmaxf(s[t][m][n][2 * h], s[t][m][n][2 * h + 1]));
        largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, 1));
        largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, 2));
        max[m][h] = __fmul_rn(largest, scale);
        const float base = -or_zero(max[m][h]);
        float total = 0;
#pragma unroll
        for (int t = 0; t < kTilesInChunk; ++t)
#pragma unroll
          for (int n = 0; n < 2; ++n) {
            const float low = exp2_approx(__fmaf_rn(s[t][m][n][2 * h], scale, base));
            const float high = exp2_approx(__fmaf_rn(s[t][m][n][2 * h + 1], scale, base));
            total = __fadd_rn(total, __fadd_rn(low, high));
            p[m][t][2 * n + h] = packed(low, high);
          }
        sum[m][h] = total;
      }
    }
  }

  // The sums over all columns of a row.
  __device__ void close() {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        sum[m][h] = __fadd_rn(sum[m][h], __shfl_xor_sync(0xFFFFFFFFu, sum[m][h], 1));
        sum[m][h] = __fadd_rn(sum[m][h], __shfl_xor_sync(0xFFFFFFFFu, sum[m][h], 2));
      }
  }
};

// The values of a tile, columns 16 n ..: b[0], b[1] for the product that gives the first eight, b[2], b[3] for the others.
template <int kHeadDim>
__device__ inline void load_values(uint32_t (&b)[4], const __nv_bfloat16* values, int n) {
  const int lane = threadIdx.x % 32, matrix = lane / 8, in_matrix = lane % 8;
  load_matrices<true>(b, &values[at<kHeadDim>(matrix % 2 * 8 + in_matrix, n * 2 + matrix / 2)]);
}

// ---- chunks, one after the other ----

// Merging a chunk into what came before it: max' = the larger, x' = x_chunk e^(max_chunk - max') + x e^(max - max').
__device__ inline float merged(float x_before, float before, float x_chunk, float chunk) {
  return __fmaf_rn(x_chunk, chunk, __fmul_rn(x_before, before));
}
struct Merge {
  float before, chunk, max;
  __device__ Merge(float max_before, float max_chunk) {
    max = fmaxf(max_before, max_chunk);
    before = exp2_approx(__fsub_rn(max_before, or_zero(max)));
    chunk = exp2_approx(__fsub_rn(max_chunk, or_zero(max)));
  }
  __device__ float operator()(float x_before, float x_chunk) const { return merged(x_before, before, x_chunk, chunk); }
};

// A chunk's sums of values `o`, of a thread's two rows, into all that came before it.
template <int n>
__device__ inline void merge_chunk(float (&all)[n][4], float (&all_sum)[2], float (&all_max)[2], const float (&o)[n][4],
                                   const Weights<1>& weights) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const Merge merge(all_max[h], weights.max[0][h]);
    all_max[h] = merge.max;
    all_sum[h] = merge(all_sum[h], weights.sum[0][h]);
#pragma unroll
    for (int j = 0; j < n; ++j)
#pragma unroll
      for (int i = 2 * h; i < 2 * h + 2; ++i) all[j][i] = merge(all[j][i], o[j][i]);
  }
}

__device__ inline float quotient(float o, float sum) { return __fadd_rn(__fdiv_rn(o, sum), 0.0f); }  // and no -0

}  // namespace lockstep::kernels
