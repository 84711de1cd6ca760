// Prefill: 128 query rows a block, four times as many flops a byte as there are heads in a group; the matrix units decide (mma.sync).
// Decode: one sequence and kv head a block, its chunks dealt to four warps; reads 4 head_dim bytes a position and kv head, once; memory
// decides.
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
constexpr int kStages = 3;

template <int kHeadDim>
__global__ void __launch_bounds__(32 * kPrefillWarps, 1) attend_many(Attention a) {
  extern __shared__ __align__(128) char memory[];
  auto* stages = reinterpret_cast<KvTileMemory<kHeadDim>*>(memory);
  const QueryTile item = a.tiles[blockIdx.x];
  const int kv_head = blockIdx.y, group = a.n_heads / a.n_kv_heads, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Sequence s(a, item.sequence, kv_head);
  const int n_rows = s.n_new * group;
  const int2 block_seen = seen_by(a, s, item.first_row, min(item.first_row + kTileRows, n_rows));
  const int first_tile = block_seen.x / kKvTile, last_tile = block_seen.y / kKvTile;

  const int my_row = item.first_row + warp * 16;
  const QueryRows<kHeadDim> rows = load_rows<kHeadDim>(a, s, kv_head, my_row);
  const int2 seen = my_row < n_rows ? seen_by(a, s, my_row, min(my_row + 16, n_rows)) : int2{0, -1};

  for (int i = 0; i < kStages - 1; ++i) {
    if (first_tile + i <= last_tile) load_tile(stages[i], s.kv, first_tile + i, threadIdx.x, blockDim.x);
    commit_copies();
  }
  Partial<kHeadDim> all, chunk;
  all.clear();
  chunk.clear();
  for (int tile = first_tile, stage = 0; tile <= last_tile; ++tile, stage = (stage + 1) % kStages) {
    wait_copies<kStages - 2>();
    __syncthreads();
    const int next = tile + kStages - 1;
    if (next <= last_tile) load_tile(stages[(stage + kStages - 1) % kStages], s.kv, next, threadIdx.x, blockDim.x);
    commit_copies();
    if (tile * kKvTile <= seen.y && (tile + 1) * kKvTile > seen.x) chunk.add(rows, stages[stage], tile, a.scale * kLog2E);
    if (tile % kTilesInChunk != kTilesInChunk - 1 && tile != last_tile) continue;
    chunk.close();
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const Merge merge(all.max[h], chunk.max[h]);
      all.max[h] = merge.max;
      all.sum[h] = merge(all.sum[h], chunk.sum[h]);
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; ++n)
#pragma unroll
        for (int i = 2 * h; i < 2 * h + 2; ++i) all.o[n][i] = merge(all.o[n][i], chunk.o[n][i]);
    }
    chunk.clear();
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
  auto* stages = reinterpret_cast<KvTileMemory<kHeadDim>*>(memory) + 2 * warp;
  const Round<kHeadDim> round(memory + 2 * kDecodeWarps * sizeof(KvTileMemory<kHeadDim>), most_rows);
  const int kv_head = blockIdx.x, group = a.n_heads / a.n_kv_heads;
  const Sequence s(a, a.few[blockIdx.y], kv_head);
  const int n_rows = s.n_new * group;
  const QueryRows<kHeadDim> rows = load_rows<kHeadDim>(a, s, kv_head, 0);
  const int2 seen = seen_by(a, s, 0, n_rows);
  const int first_chunk = seen.x / kKvChunk, last_tile = seen.y / kKvTile;
  for (int i = threadIdx.x; i < n_rows * kHeadDim; i += blockDim.x) round.all_o[i] = 0;
  for (int i = threadIdx.x; i < n_rows; i += blockDim.x) round.all_sum[i] = 0, round.all_max[i] = kMinusInfinity;

  // This warp's tiles are those of its chunks: i counts them through.
  const auto tile_of = [&](int i) { return (first_chunk + warp + i / kTilesInChunk * kDecodeWarps) * kTilesInChunk + i % kTilesInChunk; };
  const auto load = [&](int i) {
    if (tile_of(i) <= last_tile) load_tile(stages[i % 2], s.kv, tile_of(i), lane, 32);
    commit_copies();
  };
  load(0);
  Partial<kHeadDim> chunk;
  for (int i = 0, base = first_chunk; base * kTilesInChunk <= last_tile; base += kDecodeWarps) {
    chunk.clear();
    for (int t = 0; t < kTilesInChunk; ++t, ++i) {
      load(i + 1);
      wait_copies<1>();
      __syncwarp();
      const int tile = tile_of(i);
      if (tile <= last_tile && (tile + 1) * kKvTile > seen.x) chunk.add(rows, stages[i % 2], tile, a.scale * kLog2E);
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
    constexpr size_t kBytes = kStages * sizeof(KvTileMemory<kHeadDim>);
    if (const auto error = allow_memory(attend_many<kHeadDim>, kBytes); error != cudaSuccess) return error;
    attend_many<kHeadDim><<<dim3(a.n_tiles, a.n_kv_heads), 32 * kPrefillWarps, kBytes, stream>>>(a);
  }
  if (a.n_few > 0) {
    const int group = a.n_heads / a.n_kv_heads, most_rows = kFewRows / group * group;
    const size_t bytes = 2 * kDecodeWarps * sizeof(KvTileMemory<kHeadDim>) + Round<kHeadDim>::bytes(most_rows);
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
