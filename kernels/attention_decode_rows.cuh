// What a warp of decode does with a chunk, for up to sixteen query rows of a sequence or for up to eight: the same bits.
//
// Rows(a, s, kv_head, memory, n_memory) are those of a sequence; if rows_in_memory(n) is above 0, `memory` holds them as
// copy_rows left it. rows.attend(chunk, tiles, scale) takes the next chunk of `tiles`; Rows::All merges chunks one after the
// other and writes the result; chunk.visit and visit_rows show what a chunk gave to those who merge it otherwise.
#pragma once

#include "kernels/attention_kernels.cuh"
#include "kernels/attention_tiles.cuh"

namespace lockstep::kernels {

namespace {

// As prefill has it.
template <int kHeadDim>
struct SixteenRows {
  __host__ __device__ static constexpr int rows_in_memory(int most_rows) { return most_rows + 1; }  // and one of zeros
  QueryRows<kHeadDim, 1> rows;
  __device__ SixteenRows(const Attention& a, const Sequence& s, int, const __nv_bfloat16* memory, int n_memory)
      : rows(rows_of<kHeadDim, 1>(memory, n_memory, a, s, 0, 0)) {}

  struct Chunk {
    float o[kHeadDim / 8][4];
    Weights<1> weights;

    template <class F>
    __device__ void visit(const F& f) const {  // f(row, column, value) of what this thread holds
      const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4 * 2;
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) f(g + i / 2 * 8, 8 * n + t + i % 2, o[n][i]);
    }
    template <class F>
    __device__ void visit_rows(const F& f) const {
      if (threadIdx.x % 4 != 0) return;
#pragma unroll
      for (int h = 0; h < 2; ++h) f(static_cast<int>(threadIdx.x % 32 / 4) + 8 * h, weights.sum[0][h], weights.max[0][h]);
    }
  };

  template <class Tiles>
  __device__ void attend(Chunk& chunk, Tiles& tiles, float scale) const {
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
    chunk.weights.take(scores, rows, tiles.chunk, scale);
    chunk.weights.close();
#pragma unroll
    for (int n = 0; n < kHeadDim / 8; ++n) chunk.o[n][0] = chunk.o[n][1] = chunk.o[n][2] = chunk.o[n][3] = 0;
#pragma unroll
    for (int t = 0; t < kTilesInChunk; ++t) {
      const __nv_bfloat16* values = tiles.take(kTilesInChunk + t);
#pragma unroll
      for (int n = 0; n < kHeadDim / 16; ++n) {
        uint32_t b[4];
        load_values<kHeadDim>(b, values, n);
        mma(chunk.o[2 * n], chunk.weights.p[0][t], b[0], b[1]);
        mma(chunk.o[2 * n + 1], chunk.weights.p[0][t], b[2], b[3]);
      }
    }
    tiles.next_chunk();
  }

  struct All {
    float o[kHeadDim / 8][4] = {}, sum[2] = {}, max[2] = {kMinusInfinity, kMinusInfinity};

    __device__ void merge(const Chunk& chunk) { merge_chunk(o, sum, max, chunk.o, chunk.weights); }
    __device__ void write(const Attention& a, const Sequence& s, int kv_head, int n_rows) const {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int r = 8 * h + threadIdx.x % 32 / 4;
        if (r < n_rows) write_row<kHeadDim>(out_of<kHeadDim>(a, s, kv_head, r), o, sum[h], h);
      }
    }
  };
};

// The products the other way around: 16 positions or columns of a tile times eight query rows, so that no half of a product is
// nothing, and all that is of queries stays in registers. With g = l / 4 and t = 2 (l % 4), lane l has query rows t and t + 1
// (j = 0, 1 below) of positions, or columns, g and g + 8. Every sum goes over the same terms in the same order as above.
template <int kHeadDim>
struct EightRows {
  __host__ __device__ static constexpr int rows_in_memory(int) { return 0; }
  uint32_t q[kHeadDim / 16][2];  // row g, columns 16 k + t and the next, and 8 further on
  int first[2], last[2];         // positions seen; last -1: not a row
  int2 all_see;                  // positions that every row sees

  __device__ EightRows(const Attention& a, const Sequence& s, int kv_head, const __nv_bfloat16*, int) {
    const int group = a.n_heads / a.n_kv_heads, n_rows = s.n_new * group, g = threadIdx.x % 32 / 4;
    const auto* from =
        reinterpret_cast<const uint32_t*>(query_of<kHeadDim>(a, s, kv_head, min(g, n_rows - 1))) + threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < kHeadDim / 8; ++i) q[i / 2][i % 2] = g < n_rows ? from[4 * i] : 0;
    const auto first_seen = [&](int position) { return a.window > 0 && position >= a.window ? position - a.window + 1 : 0; };
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int r = threadIdx.x % 4 * 2 + j;
      last[j] = r < n_rows ? s.position(r, group) : -1;
      first[j] = first_seen(last[j]);
    }
    all_see = {first_seen(s.position(n_rows - 1, group)), s.position(0, group)};
  }

  struct Chunk {
    float o[kHeadDim / 16][4];  // columns 16 n + g, rows t and t + 1; and 8 columns further on
    float max[2];
    float sum;  // of row t + g % 2, in all lanes with this t and g % 2

    template <class F>
    __device__ void visit(const F& f) const {
      const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4 * 2;
#pragma unroll
      for (int n = 0; n < kHeadDim / 16; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) f(t + i % 2, 16 * n + i / 2 * 8 + g, o[n][i]);
    }
    template <class F>
    __device__ void visit_rows(const F& f) const {
      const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4 * 2;
      if (g < 2) f(t + g, sum, g == 0 ? max[0] : max[1]);
    }
  };

  template <class Tiles>
  __device__ void attend(Chunk& chunk, Tiles& tiles, float scale) const {
    const int lane = threadIdx.x % 32, matrix = lane / 8, in_matrix = lane % 8;
    const int of_keys = at<kHeadDim>(matrix % 2 * 8 + in_matrix, matrix / 2);
    const int of_values = at<kHeadDim>(matrix / 2 * 8 + in_matrix, matrix % 2);
    float s[kTilesInChunk][4];
#pragma unroll
    for (int t = 0; t < kTilesInChunk; ++t) {
      const __nv_bfloat16* keys = tiles.take(t);
      s[t][0] = s[t][1] = s[t][2] = s[t][3] = 0;
#pragma unroll
      for (int k = 0; k < kHeadDim / 16; ++k) {
        uint32_t a[4];
        load_matrices<false>(a, &keys[columns_on<kHeadDim>(of_keys, k)]);
        mma(s[t], a, q[k][0], q[k][1]);
      }
    }
    uint32_t p[kTilesInChunk][2];
    weigh(p, chunk, s, tiles.chunk, scale);
#pragma unroll
    for (int n = 0; n < kHeadDim / 16; ++n) chunk.o[n][0] = chunk.o[n][1] = chunk.o[n][2] = chunk.o[n][3] = 0;
#pragma unroll
    for (int t = 0; t < kTilesInChunk; ++t) {
      const __nv_bfloat16* values = tiles.take(kTilesInChunk + t);
#pragma unroll
      for (int n = 0; n < kHeadDim / 16; ++n) {
        uint32_t a[4];
        load_matrices<true>(a, &values[columns_on<kHeadDim>(of_values, n)]);
        mma(chunk.o[n], a, p[t][0], p[t][1]);
      }
    }
    tiles.next_chunk();
  }

  // Weights of scores s, as Weights has them: p for the product with the values, and of the chunk its sum and max.
  __device__ void weigh(uint32_t (&p)[kTilesInChunk][2], Chunk& chunk, float (&s)[kTilesInChunk][4], int number,
                        float scale) const {
    const int g = threadIdx.x % 32 / 4, begin = number * kKvChunk;
    if (begin < all_see.x || begin + kKvChunk - 1 > all_see.y) {
#pragma unroll
      for (int t = 0; t < kTilesInChunk; ++t)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int position = begin + t * kKvTile + i / 2 * 8 + g;
          if (position < first[i % 2] || position > last[i % 2]) s[t][i] = kMinusInfinity;
        }
    }
    float base[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float largest = kMinusInfinity;
#pragma unroll
      for (int t = 0; t < kTilesInChunk; ++t) largest = fmaxf(largest, fmaxf(s[t][j], s[t][2 + j]));
#pragma unroll
      for (int lanes = 4; lanes < 32; lanes *= 2) largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, lanes));
      chunk.max[j] = __fmul_rn(largest, scale);
      base[j] = -or_zero(chunk.max[j]);
    }
    // Neighbouring positions lie in neighbouring lanes g: of two neighbours the even one adds up row t, the odd one row t + 1.
    float total = 0;
#pragma unroll
    for (int t = 0; t < kTilesInChunk; ++t)
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const float x = exp2_approx(__fmaf_rn(s[t][2 * n], scale, base[0]));
        const float y = exp2_approx(__fmaf_rn(s[t][2 * n + 1], scale, base[1]));
        const float of_neighbour = __shfl_xor_sync(0xFFFFFFFFu, g % 2 == 0 ? y : x, 4);
        total = __fadd_rn(total, __fadd_rn(g % 2 == 0 ? x : y, of_neighbour));
        p[t][n] = transposed(packed(x, y));
      }
    total = __fadd_rn(total, __shfl_xor_sync(0xFFFFFFFFu, total, 8));
    chunk.sum = __fadd_rn(total, __shfl_xor_sync(0xFFFFFFFFu, total, 16));
  }

  struct All {
    float o[kHeadDim / 16][4] = {}, sum = 0, max[2] = {kMinusInfinity, kMinusInfinity};  // as a chunk's

    __device__ void merge(const Chunk& chunk) {
      const Merge by[2] = {{max[0], chunk.max[0]}, {max[1], chunk.max[1]}};
      max[0] = by[0].max, max[1] = by[1].max;
      const bool even = threadIdx.x / 4 % 2 == 0;
      sum = merged(sum, even ? by[0].before : by[1].before, chunk.sum, even ? by[0].chunk : by[1].chunk);
      // Mostly no row has a new largest score: then times 1 is left out, which changes no bit.
      const bool same = __all_sync(0xFFFFFFFFu, by[0].before == 1 && by[1].before == 1);
#pragma unroll
      for (int n = 0; n < kHeadDim / 16; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (!same) o[n][i] = __fmul_rn(o[n][i], by[i % 2].before);
          o[n][i] = __fmaf_rn(chunk.o[n][i], by[i % 2].chunk, o[n][i]);
        }
    }
    __device__ void write(const Attention& a, const Sequence& s, int kv_head, int n_rows) const {
      const int g = threadIdx.x % 32 / 4;
      const float of_neighbour = __shfl_xor_sync(0xFFFFFFFFu, sum, 4);
      const float x = g % 2 == 0 ? sum : of_neighbour, y = g % 2 == 0 ? of_neighbour : sum;
      auto* out = reinterpret_cast<uint32_t*>(out_of<kHeadDim>(a, s, kv_head, min(g, n_rows - 1)));
#pragma unroll
      for (int i = 0; i < kHeadDim / 8; ++i) {
        const float* both = &o[i / 2][i % 2 * 2];
        const uint32_t pair = transposed(packed(quotient(both[0], x), quotient(both[1], y)));
        if (g < n_rows) out[4 * i + threadIdx.x % 4] = pair;
      }
    }
  };
};

}  // namespace

}  // namespace lockstep::kernels
