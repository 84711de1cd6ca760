// One warp, 16 query rows, 16 positions: the piece that prefill and decode have in common, so that their bits are the same. Products by
// mma.m16n8k16 (bf16 in, f32 sums); every other operation is named with its rounding, so that the compiler fuses nothing by itself.
//
// Of 16 x 8 results a thread of lane l holds rows l / 4 and l / 4 + 8, columns 2 (l % 4) and the next: [0], [1] and [2], [3].
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/rope_kv.h"

namespace lockstep::kernels {

__device__ inline float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
constexpr float kMinusInfinity = -__builtin_huge_valf();
__device__ inline float or_zero(float m) { return m == kMinusInfinity ? 0.0f : m; }  // nothing seen yet: e^(-inf - 0) = 0

__device__ inline uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ inline void copy_async(void* to, const void* from, bool valid) {  // 16 bytes, or zeros
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(valid ? 16 : 0));
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;"); }
template <int n>
__device__ inline void wait_copies() {  // all but the last n groups of this thread have arrived
  asm volatile("cp.async.wait_group %0;" ::"n"(n));
}

template <bool transposed>
__device__ inline void load_matrices(uint32_t (&r)[4], const __nv_bfloat16* row) {
  if constexpr (transposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row)));
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row)));
}

__device__ inline void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline uint32_t packed(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const uint32_t&>(pair);
}

// Keys and values of one tile in shared memory, rows of head_dim, 16-byte pieces swizzled so that eight rows of a column of pieces lie in
// eight different banks.
template <int kHeadDim>
struct KvTileMemory {
  static constexpr int kPieces = kHeadDim / 8;
  __nv_bfloat16 keys[kKvTile * kHeadDim], values[kKvTile * kHeadDim];

  static __device__ int at(int row, int piece) {
    constexpr int kSpread = kPieces < 8 ? kPieces : 8;
    return row * kHeadDim + (piece ^ (row / (8 / kSpread) % kSpread)) * 8;
  }
};

// Where a sequence's keys and values of one kv head lie.
struct KvSource {
  const __nv_bfloat16* pages;
  const int32_t* page_ids;
  int n_kv_heads, kv_head, length;
};

// Thread `thread` of `n_threads` asks for its share of tile `tile`; positions from `length` on become zeros.
template <int kHeadDim>
__device__ inline void load_tile(KvTileMemory<kHeadDim>& memory, const KvSource& kv, int tile, int thread, int n_threads) {
  constexpr int kPieces = kHeadDim / 8;
  static_assert(kKvTile == kPagePositions);
  const size_t head = (static_cast<size_t>(kv.page_ids[tile]) * kv.n_kv_heads + kv.kv_head) * 2 * kPagePositions;
  const __nv_bfloat16* keys = kv.pages + head * kHeadDim;
  const int n_valid = kv.length - tile * kKvTile;
#pragma unroll 4
  for (int i = thread; i < kKvTile * kPieces; i += n_threads) {
    const int row = i / kPieces, piece = i % kPieces, to = KvTileMemory<kHeadDim>::at(row, piece);
    copy_async(&memory.keys[to], keys + i * 8, row < n_valid);
    copy_async(&memory.values[to], keys + kPagePositions * kHeadDim + i * 8, row < n_valid);
  }
}

// 16 query rows, of which a thread works on two.
template <int kHeadDim>
struct QueryRows {
  uint32_t q[kHeadDim / 16][4];
  int first[2], last[2];  // positions seen; last -1: not a row

  // row -> q_row(row), its kHeadDim values, or null.
  template <class Row, class Position>
  __device__ void load(Row q_row, Position position, int window) {
    const int lane = threadIdx.x % 32;
    for (int h = 0; h < 2; ++h) {
      const int row = lane / 4 + 8 * h;
      const __nv_bfloat16* x = q_row(row);
      last[h] = x != nullptr ? position(row) : -1;
      first[h] = window > 0 && last[h] >= window ? last[h] - window + 1 : 0;
#pragma unroll
      for (int k = 0; k < kHeadDim / 16; ++k) {
        const auto* pair = reinterpret_cast<const uint32_t*>(x) + k * 8 + lane % 4;
        q[k][h] = x != nullptr ? pair[0] : 0;
        q[k][2 + h] = x != nullptr ? pair[4] : 0;
      }
    }
  }
};

// Sum of values, sum of weights and largest score (in powers of two) over some positions.
template <int kHeadDim>
struct Partial {
  float o[kHeadDim / 8][4];
  float sum[2], max[2];

  __device__ void clear() {
#pragma unroll
    for (int n = 0; n < kHeadDim / 8; ++n) o[n][0] = o[n][1] = o[n][2] = o[n][3] = 0;
    sum[0] = sum[1] = 0;
    max[0] = max[1] = kMinusInfinity;
  }

  // One more tile. `sum` is this thread's own columns until `close`.
  __device__ void add(const QueryRows<kHeadDim>& rows, const KvTileMemory<kHeadDim>& kv, int tile, float scale) {
    using Memory = KvTileMemory<kHeadDim>;
    const int lane = threadIdx.x % 32, matrix = lane / 8, in_matrix = lane % 8;
    float s[2][4] = {};
#pragma unroll
    for (int k = 0; k < kHeadDim / 16; ++k) {
      uint32_t b[4];
      load_matrices<false>(b, &kv.keys[Memory::at(matrix / 2 * 8 + in_matrix, k * 2 + matrix % 2)]);
      mma(s[0], rows.q[k], b[0], b[1]);
      mma(s[1], rows.q[k], b[2], b[3]);
    }

    float largest[2] = {kMinusInfinity, kMinusInfinity};
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int h = i / 2, position = tile * kKvTile + n * 8 + lane % 4 * 2 + i % 2;
        const bool seen = position >= rows.first[h] && position <= rows.last[h];
        s[n][i] = seen ? __fmul_rn(s[n][i], scale) : kMinusInfinity;
        largest[h] = fmaxf(largest[h], s[n][i]);
      }
    float shrink[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      largest[h] = fmaxf(largest[h], __shfl_xor_sync(0xFFFFFFFFu, largest[h], 1));
      largest[h] = fmaxf(largest[h], __shfl_xor_sync(0xFFFFFFFFu, largest[h], 2));
      largest[h] = fmaxf(largest[h], max[h]);
      const float base = or_zero(largest[h]);
      shrink[h] = exp2_approx(__fsub_rn(max[h], base));
      float p_sum = 0;
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 2 * h; i < 2 * h + 2; ++i) {
          s[n][i] = exp2_approx(__fsub_rn(s[n][i], base));
          p_sum = __fadd_rn(p_sum, s[n][i]);
        }
      sum[h] = __fmaf_rn(sum[h], shrink[h], p_sum);
      max[h] = largest[h];
    }
    if (shrink[0] != 1 || shrink[1] != 1) {  // a factor of 1 changes nothing
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) o[n][i] = __fmul_rn(o[n][i], shrink[i / 2]);
    }
    const uint32_t p[4] = {packed(s[0][0], s[0][1]), packed(s[0][2], s[0][3]), packed(s[1][0], s[1][1]), packed(s[1][2], s[1][3])};
#pragma unroll
    for (int n = 0; n < kHeadDim / 16; ++n) {
      uint32_t b[4];
      load_matrices<true>(b, &kv.values[Memory::at(matrix % 2 * 8 + in_matrix, n * 2 + matrix / 2)]);
      mma(o[2 * n], p, b[0], b[1]);
      mma(o[2 * n + 1], p, b[2], b[3]);
    }
  }

  // The sums over all columns of a row.
  __device__ void close() {
    for (int h = 0; h < 2; ++h) {
      sum[h] = __fadd_rn(sum[h], __shfl_xor_sync(0xFFFFFFFFu, sum[h], 1));
      sum[h] = __fadd_rn(sum[h], __shfl_xor_sync(0xFFFFFFFFu, sum[h], 2));
    }
  }
};

// Merging a chunk into what came before it: max' = the larger, x' = x_chunk e^(max_chunk - max') + x e^(max - max').
struct Merge {
  float before, chunk, max;
  __device__ Merge(float max_before, float max_chunk) {
    max = fmaxf(max_before, max_chunk);
    before = exp2_approx(__fsub_rn(max_before, or_zero(max)));
    chunk = exp2_approx(__fsub_rn(max_chunk, or_zero(max)));
  }
  __device__ float operator()(float x_before, float x_chunk) const {
    return __fmaf_rn(x_chunk, chunk, __fmul_rn(x_before, before));
  }
};

__device__ inline float quotient(float o, float sum) { return __fadd_rn(__fdiv_rn(o, sum), 0.0f); }  // and no -0

}  // namespace lockstep::kernels
