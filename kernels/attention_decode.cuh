// Decode: a warp takes chunks by itself, of a sequence that is its own (attend_one_token) or four warps' (attend_few_rows).
#pragma once

#include <type_traits>

#include "kernels/attention_decode_rows.cuh"

namespace lockstep::kernels {

namespace {

constexpr int kDecodeWarps = 4;
constexpr int kEightRows = 8;

// n_rows: the most of a sequence, 8 or 16.
template <int kHeadDim, int n_rows>
using DecodeRows = std::conditional_t<n_rows <= kEightRows, EightRows<kHeadDim>, SixteenRows<kHeadDim>>;

// ---- decode, a warp to a sequence and kv head: no warp waits for another, but a long sequence takes long ----

// In shared memory: the warps' rings, then rows of queries, [warps][rows][kHeadDim].
template <int kHeadDim, int kRows>
size_t each_memory(int most_rows) {
  const int q_rows = DecodeRows<kHeadDim, kRows>::rows_in_memory(most_rows);
  return kDecodeWarps * (sizeof(Ring<kHeadDim>) + q_rows * kHeadDim * sizeof(__nv_bfloat16));
}

template <int kHeadDim, class Rows, class Tiles>
__device__ inline void attend_one(const Attention& a, char* memory) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, item = blockIdx.y * kDecodeWarps + warp;
  if (item >= a.n_each || a.each[item] < 0) return;
  const int kv_head = blockIdx.x, n_rows = a.n_heads / a.n_kv_heads, q_rows = Rows::rows_in_memory(n_rows);
  auto* rings = reinterpret_cast<Ring<kHeadDim>*>(memory);
  __nv_bfloat16* q = reinterpret_cast<__nv_bfloat16*>(rings + kDecodeWarps) + warp * q_rows * kHeadDim;
  const Sequence s(a, a.each[item], kv_head);
  const int2 seen = seen_by(a, s, 0, n_rows);
  const int first_chunk = seen.x / kKvChunk, last_chunk = seen.y / kKvChunk;
  const float scale = a.scale * kLog2E;
  Tiles tiles(rings[warp], s.kv, first_chunk, 1);
  tiles.begin();
  copy_rows<kHeadDim>(q, q_rows, a, s, kv_head, 0, lane, 32);
  const Rows rows(a, s, kv_head, q, q_rows);

  typename Rows::All all;
  while (tiles.chunk <= last_chunk) {
    typename Rows::Chunk chunk;
    rows.attend(chunk, tiles, scale);
    all.merge(chunk);
  }
  tiles.end();
  all.write(a, s, kv_head, n_rows);
}

template <int kHeadDim, int kRows>
__global__ void __launch_bounds__(32 * kDecodeWarps, kRows <= kEightRows ? 3 : 2) attend_one_token(Attention a) {
  extern __shared__ __align__(128) char memory[];
  attend_one<kHeadDim, DecodeRows<kHeadDim, kRows>, TilesHere<kHeadDim>>(a, memory);
}

// ---- decode, a block to a sequence and kv head: its chunks are dealt to the warps, and merged in order round by round ----

// What the warps found in one round of chunks, how it is merged, and the merged result; n_rows rows each.
template <int kHeadDim>
struct Round {
  float *o, *sum, *max;              // [kDecodeWarps][n_rows][kHeadDim], [kDecodeWarps][n_rows] twice
  float2* factors;                   // [kDecodeWarps][n_rows]  of what came before, and of the chunk
  float *all_o, *all_sum, *all_max;  // [n_rows][kHeadDim], [n_rows] twice
  __device__ Round(char* memory, int n_rows) {
    o = reinterpret_cast<float*>(memory);
    all_o = o + kDecodeWarps * n_rows * kHeadDim;
    sum = all_o + n_rows * kHeadDim;
    max = sum + kDecodeWarps * n_rows;
    all_sum = max + kDecodeWarps * n_rows;
    all_max = all_sum + n_rows;
    factors = reinterpret_cast<float2*>(all_max + n_rows);  // an even number of floats before it
  }
  // Of a column in row r of o, so that lanes that hold several rows of a column, or of two, write to different banks.
  __device__ static int place(int r, int column) { return column ^ (r / 2 * 8 & (kHeadDim - 1) & 24); }
  static size_t bytes(int n_rows) {
    return static_cast<size_t>(n_rows) * ((kDecodeWarps + 1) * (kHeadDim + 2) + 2 * kDecodeWarps) * sizeof(float);
  }
};

// In shared memory: the warps' rings, rows of queries, the round.
template <int kHeadDim, int kRows>
size_t few_memory(int most_rows) {
  const int q_rows = DecodeRows<kHeadDim, kRows>::rows_in_memory(most_rows);
  return kDecodeWarps * sizeof(Ring<kHeadDim>) + q_rows * kHeadDim * sizeof(__nv_bfloat16) + Round<kHeadDim>::bytes(most_rows);
}

template <int kHeadDim, class Rows, class Tiles>
__device__ inline void attend_some(const Attention& a, char* memory) {
  if (a.few[blockIdx.y] < 0) return;
  const int warp = threadIdx.x / 32, most_rows = a.few_rows, q_rows = Rows::rows_in_memory(most_rows);
  auto* rings = reinterpret_cast<Ring<kHeadDim>*>(memory);
  auto* q = reinterpret_cast<__nv_bfloat16*>(rings + kDecodeWarps);
  const Round<kHeadDim> round(reinterpret_cast<char*>(q + q_rows * kHeadDim), most_rows);
  const int kv_head = blockIdx.x, group = a.n_heads / a.n_kv_heads;
  const Sequence s(a, a.few[blockIdx.y], kv_head);
  const int n_rows = s.n_new * group;
  const int2 seen = seen_by(a, s, 0, n_rows);
  const int first_chunk = seen.x / kKvChunk, last_chunk = seen.y / kKvChunk;
  const float scale = a.scale * kLog2E;
  Tiles tiles(rings[warp], s.kv, first_chunk + warp, kDecodeWarps);
  tiles.begin();
  copy_rows<kHeadDim>(q, q_rows, a, s, kv_head, 0, threadIdx.x, 32 * kDecodeWarps);
  for (int i = threadIdx.x; i < n_rows * kHeadDim; i += 32 * kDecodeWarps) round.all_o[i] = 0;
  for (int i = threadIdx.x; i < n_rows; i += 32 * kDecodeWarps) round.all_sum[i] = 0, round.all_max[i] = kMinusInfinity;
  __syncthreads();
  const Rows rows(a, s, kv_head, q, q_rows);

  for (int base = first_chunk; base <= last_chunk; base += kDecodeWarps) {
    const int n_chunks = min(kDecodeWarps, last_chunk - base + 1);  // of this round
    if (warp < n_chunks) {
      typename Rows::Chunk chunk;
      rows.attend(chunk, tiles, scale);
      chunk.visit([&](int r, int column, float o) {
        if (r < n_rows) round.o[(warp * most_rows + r) * kHeadDim + round.place(r, column)] = o;
      });
      chunk.visit_rows([&](int r, float sum, float max) {
        if (r < n_rows) round.sum[warp * most_rows + r] = sum, round.max[warp * most_rows + r] = max;
      });
    }
    __syncthreads();
    if (const int r = static_cast<int>(threadIdx.x); r < n_rows) {
      float sum = round.all_sum[r], max = round.all_max[r];
      for (int w = 0; w < n_chunks; ++w) {
        const Merge merge(max, round.max[w * most_rows + r]);
        round.factors[w * most_rows + r] = {merge.before, merge.chunk};
        sum = merge(sum, round.sum[w * most_rows + r]);
        max = merge.max;
      }
      round.all_sum[r] = sum, round.all_max[r] = max;
    }
    __syncthreads();
    for (int e = threadIdx.x; e < n_rows * kHeadDim; e += 32 * kDecodeWarps) {
      const int r = e / kHeadDim;
      float o = round.all_o[e];
      for (int w = 0; w < n_chunks; ++w) {
        const float2 factors = round.factors[w * most_rows + r];
        o = merged(o, factors.x, round.o[(w * most_rows + r) * kHeadDim + round.place(r, e % kHeadDim)], factors.y);
      }
      round.all_o[e] = o;
    }
    __syncthreads();
  }
  tiles.end();

  for (int e = threadIdx.x; e < n_rows * kHeadDim; e += 32 * kDecodeWarps) {
    const int r = e / kHeadDim;
    out_of<kHeadDim>(a, s, kv_head, r)[e % kHeadDim] = __float2bfloat16_rn(quotient(round.all_o[e], round.all_sum[r]));
  }
}

template <int kHeadDim, int kRows>
__global__ void __launch_bounds__(32 * kDecodeWarps, kRows <= kEightRows ? 3 : 2) attend_few_rows(Attention a) {
  extern __shared__ __align__(128) char memory[];
  attend_some<kHeadDim, DecodeRows<kHeadDim, kRows>, TilesHere<kHeadDim>>(a, memory);
}

}  // namespace

}  // namespace lockstep::kernels
