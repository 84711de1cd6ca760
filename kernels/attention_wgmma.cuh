// Attention of prompts on sm_90a, head sizes 64 and 128: what attend_many_rows computes, in the same order, by products of 64
// rows a warpgroup. One warpgroup loads chunks of keys and values, two compute; while one is at its softmax the other has the
// matrix units.
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
  __nv_bfloat16 q[2][kPanels][kTileRows][64];  // of the item at work, and of the next; each panel swizzled as `at<64>` has it
  struct {
    __nv_bfloat16 keys[kPanels][kKvChunk][64], values[kPanels][kKvChunk][64];
  } stages[kWgmmaStages];
  struct Item {
    int q_begin, n_new, kv_length, kv_head, first_row, first_chunk, n_chunks;
  } items[2];
  Barrier loaded[kWgmmaStages], read[kWgmmaStages], done[2];
};

template <int kHeadDim>
constexpr size_t wgmma_memory() {
  return sizeof(WgmmaMemory<kHeadDim>) + 1024;  // to begin at a multiple of 1024
}

// A block's items are blockIdx.x, + gridDim.x, ...; each is a tile and a kv head. The loading group runs ahead of the computing
// ones, into the next item too. Warp t of it brings tile t of each chunk, its keys and its values.
template <int kHeadDim>
__device__ void load_items(WgmmaMemory<kHeadDim>& m, const Attention& a) {
  constexpr int kPieces = kHeadDim / 8;
  const int t = threadIdx.x / 32, lane = threadIdx.x % 32, group = a.n_heads / a.n_kv_heads;
  int n_loaded = 0;  // chunks, of all items
  for (int n = 0, item = blockIdx.x; item < a.n_tiles * a.n_kv_heads; ++n, item += gridDim.x) {
    const QueryTile tile = a.tiles[item / a.n_kv_heads];
    const int kv_head = item % a.n_kv_heads;
    const Sequence s(a, tile.sequence, kv_head);
    const int n_rows = s.n_new * group;
    const int2 seen = seen_by(a, s, tile.first_row, min(tile.first_row + kTileRows, n_rows));
    const int first_chunk = seen.x / kKvChunk, n_chunks = seen.y / kKvChunk - first_chunk + 1;
    const auto page_of = [&](int chunk) {
      const int of_chunk = chunk * kTilesInChunk + t;
      return of_chunk * kKvTile < s.kv.length ? s.kv.page_ids[of_chunk] : 0;
    };
    int page = page_of(first_chunk);
    m.done[n % 2].wait(n / 2 - 1);
    if (threadIdx.x == 0) m.items[n % 2] = {s.q_begin, s.n_new, s.kv_length, kv_head, tile.first_row, first_chunk, n_chunks};
    for (int i = threadIdx.x; i < kTileRows * kPieces; i += kGroupThreads) {
      const int row = i / kPieces, piece = i % kPieces, r = min(tile.first_row + row, n_rows - 1);
      copy_async(&m.q[n % 2][piece / 8][0][at<64>(row, piece % 8)], query_of<kHeadDim>(a, s, kv_head, r) + piece * 8,
                 tile.first_row + row < n_rows);
    }
    for (int i = 0; i < n_chunks; ++i, ++n_loaded) {
      const int stage = n_loaded % kWgmmaStages, chunk = first_chunk + i;
      const int n_valid = s.kv.length - (chunk * kTilesInChunk + t) * kKvTile;
      const __nv_bfloat16 *keys = s.kv.part<kHeadDim>(page, false), *values = s.kv.part<kHeadDim>(page, true);
      page = page_of(chunk + 1);
      m.read[stage].wait(n_loaded / kWgmmaStages - 1);
#pragma unroll
      for (int j = lane; j < kKvTile * kPieces; j += 32) {
        const int row = j / kPieces, piece = j % kPieces, to = (t * kKvTile + row) * 64 + piece % 8 * 8;
        copy_async(&m.stages[stage].keys[piece / 8][0][to], keys + j * 8, row < n_valid);
        copy_async(&m.stages[stage].values[piece / 8][0][to], values + j * 8, row < n_valid);
      }
      commit_copies();
      if (n_loaded == 0) continue;
      wait_copies<1>();  // of the chunk before, and of its item's queries
      show_to_wgmma();
      m.loaded[(n_loaded - 1) % kWgmmaStages].arrive();
    }
  }
  wait_copies<0>();
  show_to_wgmma();
  m.loaded[(n_loaded - 1) % kWgmmaStages].arrive();
}

// What one item's 64 rows of this warpgroup give; n_read: chunks of the items before.
template <int kHeadDim>
__device__ void attend_item(WgmmaMemory<kHeadDim>& m, const Attention& a, int n, int& n_read) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 - 4;  // of those that compute
  const int group_row = warp / 4 * 64;                             // of the tile
  m.loaded[n_read % kWgmmaStages].wait(n_read / kWgmmaStages);     // the item itself comes with its first chunk
  const auto item = m.items[n % 2];
  const Sequence s(item.q_begin, item.n_new, item.kv_length);
  const int n_rows = s.n_new * (a.n_heads / a.n_kv_heads), first = item.first_row + group_row;
  const auto rows = rows_of<kHeadDim, 1>(nullptr, kTileRows, a, s, item.first_row, warp * 16);
  const int2 seen = first < n_rows ? seen_by(a, s, first, min(first + 64, n_rows)) : int2{0, -1};
  const float scale = a.scale * kLog2E;

  float all[kHeadDim / 8][4] = {}, all_sum[2] = {}, all_max[2] = {kMinusInfinity, kMinusInfinity};
  for (int i = 0; i < item.n_chunks; ++i, ++n_read) {
    const int stage = n_read % kWgmmaStages, chunk = item.first_chunk + i;
    m.loaded[stage].wait(n_read / kWgmmaStages);
    if (chunk * kKvChunk <= seen.y && (chunk + 1) * kKvChunk > seen.x) {
      float scores[kTilesInChunk][1][2][4];
      wgmma_begin();
#pragma unroll
      for (int k = 0; k < kHeadDim / 16; ++k)
        wgmma_64(reinterpret_cast<float(&)[32]>(scores), matrix_at(&m.q[n % 2][k / 4][group_row][k % 4 * 16], 16),
                 matrix_at(&m.stages[stage].keys[k / 4][0][k % 4 * 16], 16), k > 0);
      wgmma_end();
      Weights<1> weights;
      weights.take(scores, rows, chunk, scale);
      weights.close();

      float o[kHeadDim / 8][4];
      wgmma_begin();
#pragma unroll
      for (int t = 0; t < kTilesInChunk; ++t)
        wgmma_values(reinterpret_cast<float(&)[kHeadDim / 2]>(o), weights.p[0][t],
                     matrix_at(&m.stages[stage].values[0][t * kKvTile][0], sizeof m.stages[stage].values[0]), t > 0);
      wgmma_end();
      if (lane == 0) m.read[stage].arrive();
      merge_chunk(all, all_sum, all_max, o, weights);
    } else if (lane == 0) {
      m.read[stage].arrive();
    }
  }
  m.done[n % 2].arrive();
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int r = item.first_row + warp * 16 + 8 * h + lane / 4;
    if (r < n_rows) write_row<kHeadDim>(out_of<kHeadDim>(a, s, item.kv_head, r), all, all_sum[h], h);
  }
}

template <int kHeadDim>
__global__ void __launch_bounds__(kWgmmaThreads, 1) attend_tile_rows(Attention a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || defined(LOCKSTEP_ON_HOST)
  extern __shared__ __align__(128) char memory[];
  auto& m = *reinterpret_cast<WgmmaMemory<kHeadDim>*>(memory + (1024 - shared_address(memory) % 1024) % 1024);
  if (threadIdx.x < kWgmmaStages) {
    m.loaded[threadIdx.x].init(kGroupThreads);
    m.read[threadIdx.x].init(4 * kComputeGroups);
    if (threadIdx.x < 2) m.done[threadIdx.x].init(kComputeGroups * kGroupThreads);
  }
  __syncthreads();
  if (threadIdx.x < kGroupThreads) {
    give_registers<40>();
    load_items<kHeadDim>(m, a);
  } else {
    take_registers<232>();
    int n_read = 0;
    for (int n = 0, item = blockIdx.x; item < a.n_tiles * a.n_kv_heads; ++n, item += gridDim.x)
      attend_item<kHeadDim>(m, a, n, n_read);
  }
#endif
}

}  // namespace

}  // namespace lockstep::kernels
