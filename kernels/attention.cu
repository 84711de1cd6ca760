// Decode: one sequence and kv head a block, its chunks dealt to four warps; reads 4 head_dim bytes a position and kv head, once, so memory
// decides. H200, 8 kv heads of 128: 0.94 of the copy rate at 256 sequences x 1024, 1.03 at 64 x 4096, 0.79 at 1024 x 300 (a block's start
// and its last round, which has work for one warp).
// Prefill: 128 query rows a block; 4 head_dim flops a (query, key) pair, so the matrix units decide: 0.25 of the product rate at 8192
// tokens. It runs mma.sync with two warps a scheduler at 255 registers; the exponentials and the merge of chunks aren't hidden behind the
// products, for which wgmma and warps with roles of their own would be needed.
#include "kernels/attention.h"

#include "kernels/attention_tile.cuh"

namespace lockstep::kernels {

namespace {

constexpr float kLog2E = 1.4426950408889634f;
constexpr int kTilesInChunk = kKvChunk / kKvTile;

struct Sequence {
  int q_begin, n_new, kv_length;
  KvSource kv;
  __device__ Sequence(const Attention& a, int s, int kv_head) {
    q_begin = a.q_offsets[s];
    n_new = a.q_offsets[s + 1] - q_begin;
    kv_length = a.kv_lengths[s];
    kv = {a.pages, a.page_ids + a.page_offsets[s], a.n_kv_heads, kv_head, kv_length};
  }
  __device__ int position(int row, int group) const { return kv_length - n_new + row / group; }
};

template <int kHeadDim>
__device__ QueryRows<kHeadDim> load_rows(const Attention& a, const Sequence& s, int kv_head, int first_row) {
  const int group = a.n_heads / a.n_kv_heads;
  QueryRows<kHeadDim> rows;
  rows.load(
      [&](int row) -> const __nv_bfloat16* {
        const int r = first_row + row;
        if (r >= s.n_new * group) return nullptr;
        return a.qkv + static_cast<size_t>(s.q_begin + r / group) * a.qkv_stride + (kv_head * group + r % group) * kHeadDim;
      },
      [&](int row) { return s.position(first_row + row, group); }, a.window);
  return rows;
}

// First and last position that rows [begin, end) see.
__device__ int2 seen_by(const Attention& a, const Sequence& s, int begin, int end) {
  const int group = a.n_heads / a.n_kv_heads;
  const int low = s.position(begin, group), high = s.position(end - 1, group);
  return {a.window > 0 && low >= a.window ? low - a.window + 1 : 0, high};
}

// ---- prefill: a block's warps share each tile ----

constexpr int kPrefillWarps = kTileRows / 16;
constexpr int kStages = 3;     // of a chunk each
constexpr int kLoaders = 128;  // threads that load a tile together

template <int kHeadDim>
__global__ void __launch_bounds__(32 * kPrefillWarps, 1) attend_many(Attention a) {
  extern __shared__ __align__(128) char memory[];
  auto* stages = reinterpret_cast<KvTileMemory<kHeadDim>*>(memory);
  const QueryTile item = a.tiles[blockIdx.x];
  const int kv_head = blockIdx.y, group = a.n_heads / a.n_kv_heads, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Sequence s(a, item.sequence, kv_head);
  const int n_rows = s.n_new * group;
  const float scale = a.scale * kLog2E;
  const int2 block_seen = seen_by(a, s, item.first_row, min(item.first_row + kTileRows, n_rows));
  const int first_chunk = block_seen.x / kKvChunk, last_chunk = block_seen.y / kKvChunk, last_tile = block_seen.y / kKvTile;

  const int my_row = item.first_row + warp * 16;
  const QueryRows<kHeadDim> rows = load_rows<kHeadDim>(a, s, kv_head, my_row);
  const int2 seen = my_row < n_rows ? seen_by(a, s, my_row, min(my_row + 16, n_rows)) : int2{0, -1};

  const auto load = [&](int chunk, int stage) {  // each half of the block takes every other tile
    for (int t = threadIdx.x / kLoaders; t < kTilesInChunk && chunk * kTilesInChunk + t <= last_tile; t += blockDim.x / kLoaders)
      load_tile(stages[stage * kTilesInChunk + t], s.kv, chunk * kTilesInChunk + t, threadIdx.x % kLoaders, kLoaders);
    commit_copies();
  };
  for (int i = 0; i < kStages - 1; ++i) load(first_chunk + i, i);
  Partial<kHeadDim> all, part;
  all.clear();
  for (int chunk = first_chunk, stage = 0; chunk <= last_chunk; ++chunk, stage = (stage + 1) % kStages) {
    wait_copies<kStages - 2>();
    __syncthreads();
    load(chunk + kStages - 1, (stage + kStages - 1) % kStages);
    if (chunk * kKvChunk > seen.y || (chunk + 1) * kKvChunk <= seen.x) continue;  // nothing of it for these rows
    part.clear();
#pragma unroll 1
    for (int t = 0; t < kTilesInChunk; ++t) {
      const int tile = chunk * kTilesInChunk + t;
      if (tile * kKvTile <= seen.y && (tile + 1) * kKvTile > seen.x) part.add(rows, stages[stage * kTilesInChunk + t], tile, scale);
    }
    part.close();
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const Merge merge(all.max[h], part.max[h]);
      all.max[h] = merge.max;
      all.sum[h] = merge(all.sum[h], part.sum[h]);
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; ++n)
#pragma unroll
        for (int i = 2 * h; i < 2 * h + 2; ++i) all.o[n][i] = merge(all.o[n][i], part.o[n][i]);
    }
  }

#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int r = my_row + lane / 4 + 8 * h;
    if (r >= n_rows) continue;
    __nv_bfloat16* out = a.out + static_cast<size_t>(s.q_begin + r / group) * a.out_stride + (kv_head * group + r % group) * kHeadDim;
#pragma unroll
    for (int n = 0; n < kHeadDim / 8; ++n)
      reinterpret_cast<uint32_t*>(out)[n * 4 + lane % 4] =
          packed(quotient(all.o[n][2 * h], all.sum[h]), quotient(all.o[n][2 * h + 1], all.sum[h]));
  }
}

// ---- decode: a block's warps share the chunks of one sequence and kv head ----

constexpr int kDecodeWarps = 4;
constexpr int kDepth = 2;  // tiles of a warp in shared memory: with 2 of head_dim 128 three blocks fit a multiprocessor, with 3 two

// What the warps found in one round of chunks, and the merged result; n_rows rows each.
template <int kHeadDim>
struct Round {
  float *o, *sum, *max;              // [kDecodeWarps][n_rows][kHeadDim], [kDecodeWarps][n_rows] twice
  float *all_o, *all_sum, *all_max;  // [n_rows][kHeadDim], [n_rows] twice
  __device__ Round(char* memory, int n_rows) {
    o = reinterpret_cast<float*>(memory);
    all_o = o + kDecodeWarps * n_rows * kHeadDim;
    sum = all_o + n_rows * kHeadDim;
    max = sum + kDecodeWarps * n_rows;
    all_sum = max + kDecodeWarps * n_rows;
    all_max = all_sum + n_rows;
  }
  static size_t bytes(int n_rows) { return static_cast<size_t>(kDecodeWarps + 1) * n_rows * (kHeadDim + 2) * sizeof(float); }
};

template <int kHeadDim>
__global__ void __launch_bounds__(32 * kDecodeWarps) attend_few(Attention a, int most_rows) {
  extern __shared__ __align__(128) char memory[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  auto* stages = reinterpret_cast<KvTileMemory<kHeadDim>*>(memory) + kDepth * warp;
  const Round<kHeadDim> round(memory + kDepth * kDecodeWarps * sizeof(KvTileMemory<kHeadDim>), most_rows);
  const int kv_head = blockIdx.x, group = a.n_heads / a.n_kv_heads;
  const Sequence s(a, a.few[blockIdx.y], kv_head);
  const int n_rows = s.n_new * group;
  const QueryRows<kHeadDim> rows = load_rows<kHeadDim>(a, s, kv_head, 0);
  const int2 seen = seen_by(a, s, 0, n_rows);
  const int first_chunk = seen.x / kKvChunk, last_tile = seen.y / kKvTile;
  const float scale = a.scale * kLog2E;
  for (int i = threadIdx.x; i < n_rows * kHeadDim; i += blockDim.x) round.all_o[i] = 0;
  for (int i = threadIdx.x; i < n_rows; i += blockDim.x) round.all_sum[i] = 0, round.all_max[i] = kMinusInfinity;

  // This warp's tiles are those of its chunks: i counts them through.
  const auto tile_of = [&](int i) { return (first_chunk + warp + i / kTilesInChunk * kDecodeWarps) * kTilesInChunk + i % kTilesInChunk; };
  const auto load = [&](int i) {
    if (tile_of(i) <= last_tile) load_tile(stages[i % kDepth], s.kv, tile_of(i), lane, 32);
    commit_copies();
  };
  for (int i = 0; i < kDepth - 1; ++i) load(i);
  Partial<kHeadDim> chunk;
  for (int i = 0, base = first_chunk; base * kTilesInChunk <= last_tile; base += kDecodeWarps) {
    chunk.clear();
    for (int t = 0; t < kTilesInChunk; ++t, ++i) {
      load(i + kDepth - 1);
      wait_copies<kDepth - 1>();
      __syncwarp();
      const int tile = tile_of(i);
      if (tile <= last_tile && (tile + 1) * kKvTile > seen.x) chunk.add(rows, stages[i % kDepth], tile, scale);
      __syncwarp();
    }
    chunk.close();
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int r = lane / 4 + 8 * h;
      if (r >= n_rows) continue;
      float2* o = reinterpret_cast<float2*>(round.o + (warp * most_rows + r) * kHeadDim);
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; ++n) o[n * 4 + lane % 4] = {chunk.o[n][2 * h], chunk.o[n][2 * h + 1]};
      if (lane % 4 == 0) round.sum[warp * most_rows + r] = chunk.sum[h], round.max[warp * most_rows + r] = chunk.max[h];
    }
    __syncthreads();
    for (int e = threadIdx.x; e < n_rows * kHeadDim; e += blockDim.x) {
      const int r = e / kHeadDim;
      float o = round.all_o[e], max = round.all_max[r];
      for (int w = 0; w < kDecodeWarps; ++w) {
        const Merge merge(max, round.max[w * most_rows + r]);
        o = merge(o, round.o[(w * most_rows + r) * kHeadDim + e % kHeadDim]);
        max = merge.max;
      }
      round.all_o[e] = o;
    }
    __syncthreads();
    if (threadIdx.x < n_rows) {
      const int r = threadIdx.x;
      float sum = round.all_sum[r], max = round.all_max[r];
      for (int w = 0; w < kDecodeWarps; ++w) {
        const Merge merge(max, round.max[w * most_rows + r]);
        sum = merge(sum, round.sum[w * most_rows + r]);
        max = merge.max;
      }
      round.all_sum[r] = sum, round.all_max[r] = max;
    }
    __syncthreads();
  }
  wait_copies<0>();

  for (int e = threadIdx.x; e < n_rows * kHeadDim; e += blockDim.x) {
    const int r = e / kHeadDim;
    a.out[static_cast<size_t>(s.q_begin + r / group) * a.out_stride + (kv_head * group + r % group) * kHeadDim + e % kHeadDim] =
        __float2bfloat16_rn(quotient(round.all_o[e], round.all_sum[r]));
  }
}

// ---- launchers ----

template <class Kernel>
cudaError_t allow_memory(Kernel kernel, size_t bytes) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
}

template <int kHeadDim>
cudaError_t launch(const Attention& a, cudaStream_t stream) {
  if (a.n_tiles > 0) {
    constexpr size_t kBytes = kStages * kTilesInChunk * sizeof(KvTileMemory<kHeadDim>);
    if (const auto error = allow_memory(attend_many<kHeadDim>, kBytes); error != cudaSuccess) return error;
    attend_many<kHeadDim><<<dim3(a.n_tiles, a.n_kv_heads), 32 * kPrefillWarps, kBytes, stream>>>(a);
  }
  if (a.n_few > 0) {
    const int group = a.n_heads / a.n_kv_heads, most_rows = kFewRows / group * group;
    const size_t bytes = kDepth * kDecodeWarps * sizeof(KvTileMemory<kHeadDim>) + Round<kHeadDim>::bytes(most_rows);
    if (const auto error = allow_memory(attend_few<kHeadDim>, bytes); error != cudaSuccess) return error;
    attend_few<kHeadDim><<<dim3(a.n_kv_heads, a.n_few), 32 * kDecodeWarps, bytes, stream>>>(a, most_rows);
  }
  return cudaGetLastError();
}

}  // namespace

bool attention_supports(int head_dim) { return head_dim == 16 || head_dim == 32 || head_dim == 64 || head_dim == 128; }

cudaError_t attention(const Attention& a, cudaStream_t stream) {
  switch (a.head_dim) {
    case 16: return launch<16>(a, stream);
    case 32: return launch<32>(a, stream);
    case 64: return launch<64>(a, stream);
    case 128: return launch<128>(a, stream);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace lockstep::kernels
