// Decode's keys and values: which tile a warp takes next, and how it comes into the warp's shared memory while it works on
// those before.
#pragma once

#include "kernels/attention_chunk.cuh"
#include "kernels/barrier.cuh"

namespace lockstep::kernels {

namespace {

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
  int chunk;                // at work
  int n_left;               // positions from its beginning on
  const int32_t* page_ids;  // of them
  unsigned n_chunks = 0;    // before it

  __device__ TileOrder(Ring<kHeadDim>& ring, const KvSource& kv, int first_chunk, int stride)
      : ring(ring),
        kv(kv),
        stride(stride),
        chunk(first_chunk),
        n_left(kv.length - first_chunk * kKvChunk),
        page_ids(kv.page_ids + first_chunk * kTilesInChunk) {}
  __device__ static bool of_values(unsigned i) { return i % kTiles >= kTilesInChunk; }
  __device__ int tile(unsigned i) const {  // from the beginning of the chunk at work
    return static_cast<int>(i / kTiles) * stride * kTilesInChunk + static_cast<int>(i % kTilesInChunk);
  }
  __device__ int n_valid(unsigned i) const { return n_left - tile(i) * kKvTile; }  // positions of it; 0 or less: none
  __device__ unsigned slot(unsigned i) const { return (n_chunks * kTiles + i) % kDepth; }
  __device__ unsigned round(unsigned i) const { return (n_chunks * kTiles + i) / kDepth; }
  __device__ void next_chunk() {
    chunk += stride, ++n_chunks;
    n_left -= stride * kKvChunk, page_ids += stride * kTilesInChunk;
  }
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
      load_tile<kHeadDim>(this->ring.tiles[this->slot(i)], this->kv, this->of_values(i),
                          this->chunk * kTilesInChunk + this->tile(i), threadIdx.x % 32, 32);
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
  static constexpr unsigned kTileBytes = kKvTile * kHeadDim * sizeof(__nv_bfloat16);
  const char* first_page;
  unsigned page_bytes;

  __device__ BulkTiles(Ring<kHeadDim>& ring, const KvSource& kv, int first_chunk, int stride)
      : TileOrder<kHeadDim>(ring, kv, first_chunk, stride),
        first_page(reinterpret_cast<const char*>(kv.part<kHeadDim>(0, false))),
        page_bytes(kv.n_kv_heads * 2 * kTileBytes) {}

  __device__ void begin() {
    if (threadIdx.x % 32 == 0) {
      for (Barrier& arrived : this->ring.arrived) arrived.init(1);
      show_barriers();
    }
    __syncwarp();
    for (unsigned i = 0; i < kDepth - 1; ++i) ask(i);
  }
  __device__ void ask(unsigned i) {
    if (this->n_valid(i) <= 0 || !elected()) return;
    Barrier& arrived = this->ring.arrived[this->slot(i)];
    arrived.arrive_and_expect(kTileBytes);
    const auto page = static_cast<unsigned>(this->page_ids[this->tile(i)]);
    copy_bulk(this->ring.tiles[this->slot(i)], first_page + uint64_t{page} * page_bytes + (this->of_values(i) ? kTileBytes : 0),
              kTileBytes, arrived);
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

}  // namespace

}  // namespace lockstep::kernels
