// A row is one block's at a time, so that a row's bits depend on the row alone: each thread sums the 8-element pieces t, t + 256, t + 512, ...
// in order, then a fixed tree adds the threads. The row stays in registers between the two passes; a block asks for its next row before it
// waits for the sum of this one, so that memory is never idle.
// Bytes: 2 n_cols read and 2 written a row (add: 4 read, 4 written); a few flops an element, so memory decides: 0.82 of a copy's rate on an H200.
#include "kernels/rms_norm.h"

#include <algorithm>
#include <cassert>

#include "kernels/this_gpu.h"

namespace lockstep::kernels {

// ---- kernels ----

namespace {

constexpr int kThreads = 256;
constexpr int kBlocksAtOnce = 4;  // a multiprocessor
constexpr int kMaxPieces = 8;  // of 8 elements a thread: rows of up to 16384 columns

struct alignas(16) Piece {
  __nv_bfloat162 pair[4];
};

// sums: [kThreads / 32], other ones than those of the row before, whose readers may still be at it.
__device__ float block_sum(float value, float* sums) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, offset);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0;
  for (int w = 0; w < kThreads / 32; ++w) sum += sums[w];
  return sum;
}

struct NormRows {
  __nv_bfloat16* out;
  int out_stride;
  __nv_bfloat16* x;
  int x_stride;
  const __nv_bfloat16* delta;  // kAdd: x += delta first
  int delta_stride;
  const float* weight;
  int n_rows, n_cols;
  float eps;
};

// A thread's pieces of a row.
template <bool kAdd, int kPieces>
struct RowPieces {
  Piece x[kPieces], delta[kAdd ? kPieces : 1];
  __device__ void load(const NormRows& a, int row) {
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      const int i = static_cast<int>(threadIdx.x) + p * kThreads;
      if (row >= a.n_rows || i >= a.n_cols / 8) break;
      x[p] = reinterpret_cast<const Piece*>(a.x + static_cast<size_t>(row) * a.x_stride)[i];
      if constexpr (kAdd) delta[p] = reinterpret_cast<const Piece*>(a.delta + static_cast<size_t>(row) * a.delta_stride)[i];
    }
  }
};

// kPieces: at least the pieces a thread has, so that short rows leave registers for more blocks; the order of sums is the same.
template <bool kAdd, int kPieces>
__global__ void __launch_bounds__(kThreads) norm_rows(NormRows a) {
  constexpr bool kAhead = kPieces <= 2;  // registers for the next row and for the weights
  __shared__ float sums[2][kThreads / 32];
  const int n_pieces = a.n_cols / 8;
  RowPieces<kAdd, kPieces> row_pieces, next;
  float2 weights[kAhead ? kPieces : 1][4];
  if constexpr (kAhead) {
    row_pieces.load(a, blockIdx.x);
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      const int i = static_cast<int>(threadIdx.x) + p * kThreads;
      for (int j = 0; j < 4; ++j) weights[p][j] = i < n_pieces ? reinterpret_cast<const float2*>(a.weight)[i * 4 + j] : float2{};
    }
  }
  int parity = 0;
  for (int row = blockIdx.x; row < a.n_rows; row += gridDim.x, parity = 1 - parity) {
    if constexpr (kAhead)
      next.load(a, row + gridDim.x);
    else
      row_pieces.load(a, row);
    float sum = 0;
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      const int i = static_cast<int>(threadIdx.x) + p * kThreads;
      if (i >= n_pieces) break;
      Piece& piece = row_pieces.x[p];
      if constexpr (kAdd) {
        for (int j = 0; j < 4; ++j) {
          const float2 x = __bfloat1622float2(piece.pair[j]), d = __bfloat1622float2(row_pieces.delta[p].pair[j]);
          piece.pair[j] = __floats2bfloat162_rn(__fadd_rn(x.x, d.x), __fadd_rn(x.y, d.y));
        }
        reinterpret_cast<Piece*>(a.x + static_cast<size_t>(row) * a.x_stride)[i] = piece;
      }
      for (int j = 0; j < 4; ++j) {
        const float2 value = __bfloat1622float2(piece.pair[j]);
        sum = __fmaf_rn(value.x, value.x, sum);
        sum = __fmaf_rn(value.y, value.y, sum);
      }
    }
    const float squares = block_sum(sum, sums[parity]);  // beyond f32: NaN, for a factor of 0 would make a broken row look like a valid one
    const float scale = isinf(squares) ? __int_as_float(0x7FC00000)
                                       : __frcp_rn(__fsqrt_rn(__fadd_rn(__fdiv_rn(squares, static_cast<float>(a.n_cols)), a.eps)));
    auto* out_row = reinterpret_cast<Piece*>(a.out + static_cast<size_t>(row) * a.out_stride);
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      const int i = static_cast<int>(threadIdx.x) + p * kThreads;
      if (i >= n_pieces) break;
      Piece piece;
      for (int j = 0; j < 4; ++j) {
        const float2 value = __bfloat1622float2(row_pieces.x[p].pair[j]);
        const float2 w = kAhead ? weights[kAhead ? p : 0][j] : reinterpret_cast<const float2*>(a.weight)[i * 4 + j];
        const float2 unit = __bfloat1622float2(__floats2bfloat162_rn(__fmul_rn(value.x, scale), __fmul_rn(value.y, scale)));
        piece.pair[j] = __floats2bfloat162_rn(__fmul_rn(unit.x, w.x), __fmul_rn(unit.y, w.y));
      }
      out_row[i] = piece;
    }
    if constexpr (kAhead) row_pieces = next;
  }
}

template <bool kAdd>
cudaError_t launch(const NormRows& a, cudaStream_t stream) {
  assert(a.n_cols % 8 == 0 && a.n_cols <= 8 * kMaxPieces * kThreads && a.out_stride % 8 == 0 && a.x_stride % 8 == 0 && a.delta_stride % 8 == 0);
  if (a.n_rows == 0) return cudaSuccess;
  const int n_pieces = (a.n_cols / 8 + kThreads - 1) / kThreads;
  const auto kernel = n_pieces <= 1   ? norm_rows<kAdd, 1>
                      : n_pieces <= 2 ? norm_rows<kAdd, 2>
                      : n_pieces <= 4 ? norm_rows<kAdd, 4>
                                      : norm_rows<kAdd, kMaxPieces>;
  const int n_blocks = n_pieces <= 2 ? std::min(a.n_rows, kBlocksAtOnce * of_this_gpu(cudaDevAttrMultiProcessorCount)) : a.n_rows;
  kernel<<<n_blocks, kThreads, 0, stream>>>(a);
  return cudaGetLastError();
}

}  // namespace

// ---- launchers ----

cudaError_t rms_norm(__nv_bfloat16* out, int out_stride, const __nv_bfloat16* x, int x_stride, const float* weight, int n_rows,
                     int n_cols, float eps, cudaStream_t stream) {
  return launch<false>({out, out_stride, const_cast<__nv_bfloat16*>(x), x_stride, nullptr, 0, weight, n_rows, n_cols, eps}, stream);
}

cudaError_t add_rms_norm(__nv_bfloat16* out, int out_stride, __nv_bfloat16* residual, int residual_stride, const __nv_bfloat16* delta,
                         int delta_stride, const float* weight, int n_rows, int n_cols, float eps, cudaStream_t stream) {
  return launch<true>({out, out_stride, residual, residual_stride, delta, delta_stride, weight, n_rows, n_cols, eps}, stream);
}

}  // namespace lockstep::kernels
