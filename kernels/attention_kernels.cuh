// Attention of prompts, and what it has in common with decode (attention_decode.cuh). Kernels differ in who takes which chunk;
// what a chunk gives and how chunks are merged is attention_chunk.cuh's.
#pragma once

#include "kernels/attention_chunk.cuh"

namespace lockstep::kernels {

namespace {

constexpr float kLog2E = 1.4426950408889634f;

struct Sequence {
  int q_begin, n_new, kv_length;
  KvSource kv;
  __device__ Sequence(const Attention& a, int s, int kv_head) {
    q_begin = a.q_offsets[s];
    n_new = a.q_offsets[s + 1] - q_begin;
    kv_length = a.kv_lengths[s];
    kv = {a.pages, a.page_ids + a.page_offsets[s], a.n_kv_heads, kv_head, kv_length};
  }
  __device__ Sequence(int begin, int n, int length) : q_begin(begin), n_new(n), kv_length(length), kv{} {}  // without its pages
  __device__ int position(int row, int group) const { return kv_length - n_new + row / group; }
};

// First and last position that rows [begin, end) see.
__device__ int2 seen_by(const Attention& a, const Sequence& s, int begin, int end) {
  const int group = a.n_heads / a.n_kv_heads;
  const int low = s.position(begin, group), high = s.position(end - 1, group);
  return {a.window > 0 && low >= a.window ? low - a.window + 1 : 0, high};
}

template <int kHeadDim>
__device__ const __nv_bfloat16* query_of(const Attention& a, const Sequence& s, int kv_head, int row) {
  const int group = a.n_heads / a.n_kv_heads;
  return a.qkv + static_cast<size_t>(s.q_begin + row / group) * a.qkv_stride + (kv_head * group + row % group) * kHeadDim;
}

// Rows first_row .. of the sequence into `memory`, from row 0 of it on; the rest of its n_memory rows become zeros.
template <int kHeadDim>
__device__ void copy_rows(__nv_bfloat16* memory, int n_memory, const Attention& a, const Sequence& s, int kv_head,
                          int first_row, int thread, int n_threads) {
  constexpr int kPieces = kHeadDim / 8;
  const int group = a.n_heads / a.n_kv_heads, n_rows = s.n_new * group;
  for (int i = thread; i < n_memory * kPieces; i += n_threads) {
    const int row = i / kPieces, piece = i % kPieces, r = first_row + row;
    const __nv_bfloat16* from = query_of<kHeadDim>(a, s, kv_head, r);
    *reinterpret_cast<uint4*>(&memory[at<kHeadDim>(row, piece)]) =
        r < n_rows ? reinterpret_cast<const uint4*>(from)[piece] : uint4{0, 0, 0, 0};
  }
}

// `memory` as copy_rows left it for first_row; this warp's are its rows from `begin` on. Rows of `memory` from `n_memory` on
// are read as row n_memory - 1, which is no row then.
template <int kHeadDim, int kRowTiles>
__device__ QueryRows<kHeadDim, kRowTiles> rows_of(const __nv_bfloat16* memory, int n_memory, const Attention& a,
                                                  const Sequence& s, int first_row, int begin) {
  const int group = a.n_heads / a.n_kv_heads, n_rows = s.n_new * group, lane = threadIdx.x % 32;
  QueryRows<kHeadDim, kRowTiles> rows;
  rows.q = memory;
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
    rows.row[m] = min(begin + 16 * m + lane % 16, n_memory - 1);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int r = first_row + begin + 16 * m + 8 * h + lane / 4;
      rows.last[m][h] = r < n_rows ? s.position(r, group) : -1;
      rows.first[m][h] = a.window > 0 && rows.last[m][h] >= a.window ? rows.last[m][h] - a.window + 1 : 0;
    }
  }
  const int low = s.position(min(first_row + begin, n_rows - 1), group);
  const int high = s.position(min(first_row + begin + 16 * kRowTiles, n_rows) - 1, group);
  rows.all_see = {a.window > 0 && high >= a.window ? high - a.window + 1 : 0, low};
  return rows;
}

template <int kHeadDim>
__device__ __nv_bfloat16* out_of(const Attention& a, const Sequence& s, int kv_head, int row) {
  const int group = a.n_heads / a.n_kv_heads;
  return a.out + static_cast<size_t>(s.q_begin + row / group) * a.out_stride + (kv_head * group + row % group) * kHeadDim;
}

// This thread's columns of a row, of its upper or lower half h, into the row `out`.
template <int kHeadDim>
__device__ void write_row(__nv_bfloat16* out, const float (&o)[kHeadDim / 8][4], float sum, int h) {
#pragma unroll
  for (int n = 0; n < kHeadDim / 8; ++n)
    reinterpret_cast<uint32_t*>(out)[n * 4 + threadIdx.x % 4] =
        packed(quotient(o[n][2 * h], sum), quotient(o[n][2 * h + 1], sum));
}

// ---- prefill: the warps of a block share each chunk, and have 32 rows each ----

constexpr int kPrefillWarps = kTileRows / 32;
constexpr int kStages = 2;  // chunks in shared memory

template <int kHeadDim>
constexpr size_t prefill_memory() {
  return static_cast<size_t>(kTileRows + kStages * 2 * kKvChunk) * kHeadDim * sizeof(__nv_bfloat16);
}

template <int kHeadDim>
__global__ void __launch_bounds__(32 * kPrefillWarps, 2) attend_many_rows(Attention a) {
  extern __shared__ __align__(128) char memory[];
  constexpr int kTile = kKvTile * kHeadDim;  // values in one
  auto* q = reinterpret_cast<__nv_bfloat16*>(memory);
  __nv_bfloat16* stages = q + kTileRows * kHeadDim;  // [kStages][keys, values][kKvChunk][kHeadDim]
  const QueryTile item = a.tiles[blockIdx.x];
  const int kv_head = blockIdx.y, group = a.n_heads / a.n_kv_heads, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Sequence s(a, item.sequence, kv_head);
  const int n_rows = s.n_new * group;
  const float scale = a.scale * kLog2E;
  const int2 block_seen = seen_by(a, s, item.first_row, min(item.first_row + kTileRows, n_rows));
  const int first_chunk = block_seen.x / kKvChunk, last_chunk = block_seen.y / kKvChunk;

  const auto load = [&](int chunk, int stage) {
#pragma unroll 1
    for (int t = 0; chunk <= last_chunk && t < 2 * kTilesInChunk; ++t)
      load_tile<kHeadDim>(stages + (stage * 2 * kTilesInChunk + t) * kTile, s.kv, t >= kTilesInChunk,
                          chunk * kTilesInChunk + t % kTilesInChunk, threadIdx.x, 32 * kPrefillWarps);
    commit_copies();
  };
  load(first_chunk, 0);
  copy_rows<kHeadDim>(q, kTileRows, a, s, kv_head, item.first_row, threadIdx.x, 32 * kPrefillWarps);
  const int my_row = item.first_row + warp * 32;
  const auto rows = rows_of<kHeadDim, 2>(q, kTileRows, a, s, item.first_row, warp * 32);
  const int2 seen = my_row < n_rows ? seen_by(a, s, my_row, min(my_row + 32, n_rows)) : int2{0, -1};

  float all[2][kHeadDim / 8][4] = {}, all_sum[2][2] = {}, all_max[2][2];
#pragma unroll
  for (int m = 0; m < 2; ++m) all_max[m][0] = all_max[m][1] = kMinusInfinity;
  for (int chunk = first_chunk, stage = 0; chunk <= last_chunk; ++chunk, stage = (stage + 1) % kStages) {
    wait_copies<0>();
    __syncthreads();
    load(chunk + 1, (stage + 1) % kStages);
    if (chunk * kKvChunk > seen.y || (chunk + 1) * kKvChunk <= seen.x) continue;  // nothing of it for these rows
    const __nv_bfloat16* keys = stages + stage * 2 * kTilesInChunk * kTile;
    const __nv_bfloat16* values = keys + kTilesInChunk * kTile;

    Weights<2> weights;
    {
      float scores[kTilesInChunk][2][2][4] = {};
#pragma unroll
      for (int k = 0; k < kHeadDim / 16; ++k) {
        uint32_t x[2][4];
        rows.load(x[0], 0, k);
        rows.load(x[1], 1, k);
#pragma unroll
        for (int t = 0; t < kTilesInChunk; ++t) add_products<kHeadDim, 2>(scores[t], x, keys + t * kTile, k);
      }
      weights.take(scores, rows, chunk, scale);
    }
    weights.close();

    float before[2][2], of_chunk[2][2];
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const Merge merge(all_max[m][h], weights.max[m][h]);
        all_max[m][h] = merge.max;
        all_sum[m][h] = merge(all_sum[m][h], weights.sum[m][h]);
        before[m][h] = merge.before, of_chunk[m][h] = merge.chunk;
      }
#pragma unroll
    for (int n = 0; n < kHeadDim / 16; ++n) {
      float o[2][2][4] = {};
#pragma unroll
      for (int t = 0; t < kTilesInChunk; ++t) {
        uint32_t b[4];
        load_values<kHeadDim>(b, values + t * kTile, n);
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          mma(o[m][0], weights.p[m][t], b[0], b[1]);
          mma(o[m][1], weights.p[m][t], b[2], b[3]);
        }
      }
#pragma unroll
      for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          float& x = all[m][2 * n + i / 4][i % 4];
          x = merged(x, before[m][i / 2 % 2], o[m][i / 4][i % 4], of_chunk[m][i / 2 % 2]);
        }
    }
  }

#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int r = my_row + 16 * m + 8 * h + lane / 4;
      if (r >= n_rows) continue;
      write_row<kHeadDim>(out_of<kHeadDim>(a, s, kv_head, r), all[m], all_sum[m][h], h);
    }
}

}  // namespace

}  // namespace lockstep::kernels
