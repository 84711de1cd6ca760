// Attention of prompts on sm_90a, head sizes 64 and 128: what attend_many_rows computes, in the same order, by products of 64 rows a
// warpgroup. One warpgroup loads chunks of keys and values, two compute; while one is at its softmax the other has the matrix units.
#pragma once

#include "kernels/attention_kernels.cuh"
#include "kernels/warpgroup.cuh"

namespace lockstep::kernels {

namespace {

constexpr int kGroupThreads = 128, kComputeGroups = kTileRows / 64, kWgmmaThreads = (1 + kComputeGroups) * kGroupThreads;
constexpr int kWgmmaStages = 4;  // chunks in shared memory

template <int kHeadDim>
struct WgmmaMemory {
  static constexpr int kPanels = kHeadDim / 64;
  __nv_bfloat16 q[kPanels][kTileRows][64];
  struct {
    __nv_bfloat16 keys[kPanels][kKvChunk][64], values[kPanels][kKvChunk][64];
  } stages[kWgmmaStages];
  Barrier loaded[kWgmmaStages], read[kWgmmaStages];
};

template <int kHeadDim>
constexpr size_t wgmma_memory() {
  return sizeof(WgmmaMemory<kHeadDim>) + 1024;  // to begin at a multiple of 1024
}

__device__ inline int swizzled(int row, int piece) { return row * 64 + (piece % 8 ^ row % 8) * 8; }

// Warp t of the loading group brings tile t of each chunk, its keys and its values.
template <int kHeadDim>
__device__ void load_chunks(WgmmaMemory<kHeadDim>& m, const KvSource& kv, int first_chunk, int n_chunks) {
  constexpr int kPieces = kHeadDim / 8, kPart = kPagePositions * kHeadDim;
  const int t = threadIdx.x % kGroupThreads / 32, lane = threadIdx.x % 32;
  const auto page_of = [&](int chunk) {
    const int tile = chunk * kTilesInChunk + t;
    return tile * kKvTile < kv.length ? kv.page_ids[tile] : 0;
  };
  int page = page_of(first_chunk);
  for (int i = 0; i < n_chunks; ++i) {
    const int stage = i % kWgmmaStages, chunk = first_chunk + i, n_valid = kv.length - (chunk * kTilesInChunk + t) * kKvTile;
    const __nv_bfloat16* keys = kv.pages + (static_cast<size_t>(page) * kv.n_kv_heads + kv.kv_head) * 2 * kPart;
    page = page_of(chunk + 1);
    m.read[stage].wait(i / kWgmmaStages - 1);
#pragma unroll
    for (int j = lane; j < kKvTile * kPieces; j += 32) {
      const int row = j / kPieces, piece = j % kPieces, at = swizzled(t * kKvTile + row, piece);
      copy_async(&m.stages[stage].keys[piece / 8][0][at], keys + j * 8, row < n_valid);
      copy_async(&m.stages[stage].values[piece / 8][0][at], keys + kPart + j * 8, row < n_valid);
    }
    commit_copies();
    if (i == 0) continue;
    wait_copies<1>();  // of the chunk before
    show_to_wgmma();
    m.loaded[(i - 1) % kWgmmaStages].arrive();
  }
  wait_copies<0>();
  show_to_wgmma();
  m.loaded[(n_chunks - 1) % kWgmmaStages].arrive();
}

template <int kHeadDim>
__global__ void __launch_bounds__(kWgmmaThreads, 1) attend_tile_rows(Attention a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(128) char memory[];
  auto& m = *reinterpret_cast<WgmmaMemory<kHeadDim>*>(memory + (1024 - shared_address(memory) % 1024) % 1024);
  const QueryTile item = a.tiles[blockIdx.x];
  const int kv_head = blockIdx.y, group = a.n_heads / a.n_kv_heads;
  const Sequence s(a, item.sequence, kv_head);
  const int n_rows = s.n_new * group;
  const int2 block_seen = seen_by(a, s, item.first_row, min(item.first_row + kTileRows, n_rows));
  const int first_chunk = block_seen.x / kKvChunk, n_chunks = block_seen.y / kKvChunk - first_chunk + 1;

  if (threadIdx.x < kWgmmaStages) {
    m.loaded[threadIdx.x].init(kGroupThreads);
    m.read[threadIdx.x].init(4 * kComputeGroups);
  }
  for (int i = threadIdx.x; i < kTileRows * kHeadDim / 8; i += kWgmmaThreads) {
    const int row = i / (kHeadDim / 8), piece = i % (kHeadDim / 8), r = item.first_row + row;
    const __nv_bfloat16* from = a.qkv + static_cast<size_t>(s.q_begin + r / group) * a.qkv_stride + (kv_head * group + r % group) * kHeadDim;
    *reinterpret_cast<uint4*>(&m.q[piece / 8][0][swizzled(row, piece)]) =
        r < n_rows ? reinterpret_cast<const uint4*>(from)[piece] : uint4{0, 0, 0, 0};
  }
  show_to_wgmma();
  __syncthreads();

  if (threadIdx.x < kGroupThreads) {
    give_registers<40>();
    load_chunks<kHeadDim>(m, s.kv, first_chunk, n_chunks);
    return;
  }
  take_registers<232>();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 - 4;  // of those that compute
  const int group_row = warp / 4 * 64;                             // of the tile
  const auto rows = rows_of<kHeadDim, 1>(nullptr, kTileRows, a, s, item.first_row, warp * 16);
  const int first = item.first_row + group_row;
  const int2 seen = first < n_rows ? seen_by(a, s, first, min(first + 64, n_rows)) : int2{0, -1};
  const float scale = a.scale * kLog2E;

  float all[kHeadDim / 8][4] = {}, all_sum[2] = {}, all_max[2] = {kMinusInfinity, kMinusInfinity};
  for (int i = 0; i < n_chunks; ++i) {
    const int stage = i % kWgmmaStages, chunk = first_chunk + i;
    m.loaded[stage].wait(i / kWgmmaStages);
    if (chunk * kKvChunk <= seen.y && (chunk + 1) * kKvChunk > seen.x) {
      float scores[kTilesInChunk][1][2][4];
      wgmma_begin();
#pragma unroll
      for (int k = 0; k < kHeadDim / 16; ++k)
        wgmma_64(reinterpret_cast<float (&)[32]>(scores), matrix_at(&m.q[k / 4][group_row][k % 4 * 16], 16),
                 matrix_at(&m.stages[stage].keys[k / 4][0][k % 4 * 16], 16), k > 0);
      wgmma_end();
      Weights<1> weights;
      weights.take(scores, rows, chunk, scale);
      weights.close();

      float o[kHeadDim / 8][4];
      wgmma_begin();
#pragma unroll
      for (int t = 0; t < kTilesInChunk; ++t)
        wgmma_values(reinterpret_cast<float (&)[kHeadDim / 2]>(o), weights.p[0][t],
                     matrix_at(&m.stages[stage].values[0][t * kKvTile][0], sizeof m.stages[stage].values[0]), t > 0);
      wgmma_end();
      if (lane == 0) m.read[stage].arrive();
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const Merge merge(all_max[h], weights.max[0][h]);
        all_max[h] = merge.max;
        all_sum[h] = merge(all_sum[h], weights.sum[0][h]);
#pragma unroll
        for (int n = 0; n < kHeadDim / 8; ++n)
#pragma unroll
          for (int j = 2 * h; j < 2 * h + 2; ++j) all[n][j] = merge(all[n][j], o[n][j]);
      }
    } else if (lane == 0) {
      m.read[stage].arrive();
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int r = item.first_row + warp * 16 + 8 * h + lane / 4;
    if (r < n_rows) write_row<kHeadDim>(out_of<kHeadDim>(a, s, kv_head, r), all, all_sum[h], h);
  }
#endif
}

}  // namespace

}  // namespace lockstep::kernels
