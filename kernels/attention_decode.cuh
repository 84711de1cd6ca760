// Decode: a warp takes chunks by itself, of a sequence that is its own (attend_one_token) or four warps' (attend_few_rows).
#pragma once

#include "kernels/attention_kernels.cuh"
#include "kernels/barrier.cuh"

namespace lockstep::kernels {

namespace {

// ---- decode: a warp takes chunks by itself ----

constexpr int kDecodeWarps = 4;
constexpr int kDepth = 4;  // tiles of keys or values that a warp holds or waits for

template <int kHeadDim>
struct alignas(128) Ring {
  __nv_bfloat16 tiles[kDepth][kKvTile * kHeadDim];
  Barrier arrived[kDepth];  // of BulkTiles
};

// A warp's tiles in the order of their use: the keys of a chunk, its values, the keys of the chunk `stride` further on, ...
// Tile i is counted from the beginning of the chunk at work.
template <int kHeadDim>
struct TileOrder {
  static constexpr unsigned kTiles = 2 * kTilesInChunk;  // in a chunk
  Ring<kHeadDim>& ring;
  const KvSource kv;
  const int stride;
  int chunk;              // at work
  unsigned n_chunks = 0;  // before it

  __device__ TileOrder(Ring<kHeadDim>& ring, const KvSource& kv, int first_chunk, int stride)
      : ring(ring), kv(kv), stride(stride), chunk(first_chunk) {}
  __device__ static bool of_values(unsigned i) { return i % kTiles >= kTilesInChunk; }
  __device__ int tile(unsigned i) const {
    return (chunk + static_cast<int>(i / kTiles) * stride) * kTilesInChunk + static_cast<int>(i % kTilesInChunk);
  }
  __device__ int n_valid(unsigned i) const { return kv.length - tile(i) * kKvTile; }  // positions; 0 or less: none
  __device__ unsigned slot(unsigned i) const { return (n_chunks * kTiles + i) % kDepth; }
  __device__ unsigned round(unsigned i) const { return (n_chunks * kTiles + i) / kDepth; }
  __device__ void next_chunk() { chunk += stride, ++n_chunks; }
};

// Each thread asks for pieces of 16 bytes.
template <int kHeadDim>
struct AsyncTiles : TileOrder<kHeadDim> {
  using TileOrder<kHeadDim>::TileOrder;

  __device__ void begin() {
    for (unsigned i = 0; i < kDepth - 1; ++i) ask(i);
  }
  __device__ void ask(unsigned i) {
    if (this->n_valid(i / this->kTiles * this->kTiles) > 0)  // of a chunk that is there
      load_tile<kHeadDim>(this->ring.tiles[this->slot(i)], this->kv, this->of_values(i), this->tile(i), threadIdx.x % 32, 32);
    commit_copies();
  }
  // Tile i; those before it may then be overwritten.
  __device__ const __nv_bfloat16* take(unsigned i) {
    __syncwarp();
    ask(i + kDepth - 1);
    wait_copies<kDepth - 1>();
    __syncwarp();
    return this->ring.tiles[this->slot(i)];
  }
  __device__ void end() { wait_copies<0>(); }
};

// One thread asks for a tile; sm_90 and later.
template <int kHeadDim>
struct BulkTiles : TileOrder<kHeadDim> {
  using TileOrder<kHeadDim>::TileOrder;

  __device__ void begin() {
    if (threadIdx.x % 32 == 0) {
      for (Barrier& arrived : this->ring.arrived) arrived.init(1);
      show_barriers();
    }
    __syncwarp();
    for (unsigned i = 0; i < kDepth - 1; ++i) ask(i);
  }
  __device__ void ask(unsigned i) {
    if (threadIdx.x % 32 != 0 || this->n_valid(i) <= 0) return;
    Barrier& arrived = this->ring.arrived[this->slot(i)];
    arrived.arrive_and_expect(sizeof this->ring.tiles[0]);
    copy_bulk(this->ring.tiles[this->slot(i)],
              this->kv.template part<kHeadDim>(this->kv.page_ids[this->tile(i)], this->of_values(i)),
              sizeof this->ring.tiles[0], arrived);
  }
  // Tile i; those before it may then be overwritten. Keys beyond the sequence's end are anything, and values zeros.
  __device__ const __nv_bfloat16* take(unsigned i) {
    __syncwarp();
    ask(i + kDepth - 1);
    const int n_valid = this->n_valid(i);
    __nv_bfloat16* tile = this->ring.tiles[this->slot(i)];
    if (n_valid > 0) this->ring.arrived[this->slot(i)].wait(static_cast<int>(this->round(i)));
    if (this->of_values(i) && n_valid < kKvTile) {  // only at the end, so that no copy comes to this place any more
      constexpr int kPieces = kHeadDim / 8;
#pragma unroll 1
      for (int j = max(n_valid, 0) * kPieces + static_cast<int>(threadIdx.x % 32); j < kKvTile * kPieces; j += 32)
        reinterpret_cast<uint4*>(tile)[j] = {0, 0, 0, 0};
      __syncwarp();
    }
    return tile;
  }
  __device__ void end() {}  // all that was asked for was taken
};

#if defined(LOCKSTEP_ON_HOST) || __CUDA_ARCH__ >= 900
template <int kHeadDim>
using TilesHere = BulkTiles<kHeadDim>;
#else
template <int kHeadDim>
using TilesHere = AsyncTiles<kHeadDim>;
#endif

// Eight query rows of a warp, or fewer; all of a thread's values are in registers.
template <int kHeadDim>
struct HeldRows : QueryRows<kHeadDim, 1> {
  uint32_t held[kHeadDim / 16][2];

  __device__ HeldRows(const Attention& a, const Sequence& s, int kv_head)
      : QueryRows<kHeadDim, 1>(rows_of<kHeadDim, 1>(nullptr, kFewRows, a, s, 0, 0)) {
    const int row = threadIdx.x % 32 / 4, n_rows = s.n_new * (a.n_heads / a.n_kv_heads);
    const auto* from =
        reinterpret_cast<const uint32_t*>(query_of<kHeadDim>(a, s, kv_head, min(row, n_rows - 1))) + threadIdx.x % 4;
#pragma unroll
    for (int k = 0; k < kHeadDim / 16; ++k)
#pragma unroll
      for (int i = 0; i < 2; ++i) held[k][i] = row < n_rows ? from[8 * k + 4 * i] : 0;
  }
  __device__ void load(uint32_t (&a)[4], int, int k) const { a[0] = held[k][0], a[1] = 0, a[2] = held[k][1], a[3] = 0; }
};

// Rows of queries in a block's shared memory. kHalves 1: no sequence has more than eight, and they are in registers.
__host__ __device__ constexpr int query_rows(int n_halves, int most_rows) {
  return n_halves == 1 ? 0 : most_rows + 1;  // and one of zeros
}

// All rows of a sequence; `memory`, of n_memory rows, as copy_rows left it.
template <int kHeadDim, int kHalves>
__device__ auto decode_rows(const __nv_bfloat16* memory, int n_memory, const Attention& a, const Sequence& s, int kv_head) {
  if constexpr (kHalves == 1)
    return HeldRows<kHeadDim>(a, s, kv_head);
  else
    return rows_of<kHeadDim, 1>(memory, n_memory, a, s, 0, 0);
}

// The next chunk: its weights, and its sums of values in o.
template <int kHeadDim, int kHalves, class Rows, class Tiles>
__device__ inline void attend_chunk(float (&o)[kHeadDim / 8][4], Weights<1, kHalves>& weights, Tiles& tiles, const Rows& rows,
                                    float scale) {
  float scores[kTilesInChunk][1][2][4] = {};
#pragma unroll
  for (int t = 0; t < kTilesInChunk; ++t) {
    const __nv_bfloat16* keys = tiles.take(t);
#pragma unroll
    for (int k = 0; k < kHeadDim / 16; ++k) {
      uint32_t x[1][4];
      rows.load(x[0], 0, k);
      add_products<kHeadDim, 1>(scores[t], x, keys, k);
    }
  }
  weights.take(scores, rows, tiles.chunk, scale);
  weights.close();
#pragma unroll
  for (int n = 0; n < kHeadDim / 8; ++n) o[n][0] = o[n][1] = o[n][2] = o[n][3] = 0;
#pragma unroll
  for (int t = 0; t < kTilesInChunk; ++t) {
    const __nv_bfloat16* values = tiles.take(kTilesInChunk + t);
#pragma unroll
    for (int n = 0; n < kHeadDim / 16; ++n) {
      uint32_t b[4];
      load_values<kHeadDim>(b, values, n);
      mma(o[2 * n], weights.p[0][t], b[0], b[1]);
      mma(o[2 * n + 1], weights.p[0][t], b[2], b[3]);
    }
  }
  tiles.next_chunk();
}

// ---- decode, a warp to a sequence and kv head: no warp waits for another, but a long sequence takes long ----

// In shared memory: the warps' rings, then rows of queries, [warps][rows][kHeadDim].
template <int kHeadDim, int kHalves>
size_t each_memory(int most_rows) {
  return kDecodeWarps * (sizeof(Ring<kHeadDim>) + query_rows(kHalves, most_rows) * kHeadDim * sizeof(__nv_bfloat16));
}

template <int kHeadDim, int kHalves, class Tiles>
__device__ inline void attend_one(const Attention& a, char* memory) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, item = blockIdx.y * kDecodeWarps + warp;
  if (item >= a.n_each || a.each[item] < 0) return;
  const int kv_head = blockIdx.x, n_rows = a.n_heads / a.n_kv_heads, q_rows = query_rows(kHalves, n_rows);
  auto* rings = reinterpret_cast<Ring<kHeadDim>*>(memory);
  __nv_bfloat16* q = reinterpret_cast<__nv_bfloat16*>(rings + kDecodeWarps) + warp * q_rows * kHeadDim;
  const Sequence s(a, a.each[item], kv_head);
  const int2 seen = seen_by(a, s, 0, n_rows);
  const int first_chunk = seen.x / kKvChunk, last_chunk = seen.y / kKvChunk;
  const float scale = a.scale * kLog2E;
  Tiles tiles(rings[warp], s.kv, first_chunk, 1);
  tiles.begin();
  copy_rows<kHeadDim>(q, q_rows, a, s, kv_head, 0, lane, 32);
  const auto rows = decode_rows<kHeadDim, kHalves>(q, q_rows, a, s, kv_head);

  float all[kHeadDim / 8][2 * kHalves] = {}, all_sum[kHalves] = {}, all_max[kHalves];
#pragma unroll
  for (int h = 0; h < kHalves; ++h) all_max[h] = kMinusInfinity;
  for (int chunk = first_chunk; chunk <= last_chunk; ++chunk) {
    float o[kHeadDim / 8][4];
    Weights<1, kHalves> weights;
    attend_chunk<kHeadDim, kHalves>(o, weights, tiles, rows, scale);
    merge_chunk<kHeadDim / 8, kHalves>(all, all_sum, all_max, o, weights);
  }
  tiles.end();

#pragma unroll
  for (int h = 0; h < kHalves; ++h) {
    const int r = 8 * h + lane / 4;
    if (r >= n_rows) continue;
    write_row<kHeadDim>(out_of<kHeadDim>(a, s, kv_head, r), all, all_sum[h], h);
  }
}

template <int kHeadDim, int kHalves>
__global__ void __launch_bounds__(32 * kDecodeWarps, 3) attend_one_token(Attention a) {
  extern __shared__ __align__(128) char memory[];
  attend_one<kHeadDim, kHalves, TilesHere<kHeadDim>>(a, memory);
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
  static size_t bytes(int n_rows) {
    return static_cast<size_t>(n_rows) * ((kDecodeWarps + 1) * (kHeadDim + 2) + 2 * kDecodeWarps) * sizeof(float);
  }
};

// In shared memory: the warps' rings, rows of queries, the round.
template <int kHeadDim, int kHalves>
size_t few_memory(int most_rows) {
  return kDecodeWarps * sizeof(Ring<kHeadDim>) + query_rows(kHalves, most_rows) * kHeadDim * sizeof(__nv_bfloat16) +
         Round<kHeadDim>::bytes(most_rows);
}

template <int kHeadDim, int kHalves, class Tiles>
__device__ inline void attend_some(const Attention& a, char* memory) {
  if (a.few[blockIdx.y] < 0) return;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, most_rows = a.few_rows, q_rows = query_rows(kHalves, most_rows);
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
  const auto rows = decode_rows<kHeadDim, kHalves>(q, q_rows, a, s, kv_head);

  for (int base = first_chunk; base <= last_chunk; base += kDecodeWarps) {
    const int n_chunks = min(kDecodeWarps, last_chunk - base + 1);  // of this round
    if (warp < n_chunks) {
      float o[kHeadDim / 8][4];
      Weights<1, kHalves> weights;
      attend_chunk<kHeadDim, kHalves>(o, weights, tiles, rows, scale);
#pragma unroll
      for (int h = 0; h < kHalves; ++h) {
        const int r = lane / 4 + 8 * h;
        if (r >= n_rows) continue;
        float2* to = reinterpret_cast<float2*>(round.o + (warp * most_rows + r) * kHeadDim);
#pragma unroll
        for (int n = 0; n < kHeadDim / 8; ++n) to[n * 4 + lane % 4] = {o[n][2 * h], o[n][2 * h + 1]};
        if (lane % 4 == 0)
          round.sum[warp * most_rows + r] = weights.sum[0][h], round.max[warp * most_rows + r] = weights.max[0][h];
      }
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
        o = merged(o, factors.x, round.o[(w * most_rows + r) * kHeadDim + e % kHeadDim], factors.y);
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

template <int kHeadDim, int kHalves>
__global__ void __launch_bounds__(32 * kDecodeWarps) attend_few_rows(Attention a) {
  extern __shared__ __align__(128) char memory[];
  attend_some<kHeadDim, kHalves, TilesHere<kHeadDim>>(a, memory);
}

}  // namespace

}  // namespace lockstep::kernels
