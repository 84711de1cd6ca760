// One block a row, so that a row's bits depend on the row alone: each thread sums the 8-element pieces t, t + 256, t + 512, ... in
// order, then a fixed tree adds the threads. The row stays in registers between the two passes.
// Bytes: 2 n_cols read and 2 written a row (add: 4 read, 4 written); a few flops an element, so memory decides.
#include "kernels/rms_norm.h"

#include <cassert>

namespace lockstep::kernels {

// ---- kernels ----

namespace {

constexpr int kThreads = 256;
constexpr int kMaxPieces = 8;  // of 8 elements a thread: rows of up to 16384 columns

struct alignas(16) Piece {
  __nv_bfloat162 pair[4];
};

__device__ float block_sum(float value) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, offset);
  __shared__ float warps[kThreads / 32];
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0;
  for (int w = 0; w < kThreads / 32; ++w) sum += warps[w];
  return sum;
}

// kPieces: at least the pieces a thread has, so that short rows leave registers for more blocks; the order of sums is the same.
template <bool kAdd, int kPieces>
__global__ void __launch_bounds__(kThreads)
    norm_rows(__nv_bfloat16* out, int out_stride, __nv_bfloat16* x, int x_stride, const __nv_bfloat16* delta, int delta_stride,
              const float* weight, int n_cols, float eps) {
  const size_t row = blockIdx.x;
  const int n_pieces = n_cols / 8;
  auto* x_row = reinterpret_cast<Piece*>(x + row * x_stride);
  float2 values[kPieces][4];
  float sum = 0;
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
    const int i = static_cast<int>(threadIdx.x) + p * kThreads;
    if (i >= n_pieces) break;
    Piece piece = x_row[i];
    if constexpr (kAdd) {
      const Piece d = reinterpret_cast<const Piece*>(delta + row * delta_stride)[i];
      for (int j = 0; j < 4; ++j) {
        const float2 a = __bfloat1622float2(piece.pair[j]), b = __bfloat1622float2(d.pair[j]);
        piece.pair[j] = __floats2bfloat162_rn(__fadd_rn(a.x, b.x), __fadd_rn(a.y, b.y));
      }
      x_row[i] = piece;
    }
    for (int j = 0; j < 4; ++j) {
      values[p][j] = __bfloat1622float2(piece.pair[j]);
      sum = __fmaf_rn(values[p][j].x, values[p][j].x, sum);
      sum = __fmaf_rn(values[p][j].y, values[p][j].y, sum);
    }
  }
  const float squares = block_sum(sum);  // beyond f32: NaN, for a factor of 0 would make a broken row look like a valid one
  const float scale = isinf(squares) ? __int_as_float(0x7FC00000)
                                     : __frcp_rn(__fsqrt_rn(__fadd_rn(__fdiv_rn(squares, static_cast<float>(n_cols)), eps)));
  auto* out_row = reinterpret_cast<Piece*>(out + row * out_stride);
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
    const int i = static_cast<int>(threadIdx.x) + p * kThreads;
    if (i >= n_pieces) break;
    const auto* w = reinterpret_cast<const float2*>(weight) + i * 4;
    Piece piece;
    for (int j = 0; j < 4; ++j) {
      const float2 unit = __bfloat1622float2(
          __floats2bfloat162_rn(__fmul_rn(values[p][j].x, scale), __fmul_rn(values[p][j].y, scale)));
      piece.pair[j] = __floats2bfloat162_rn(__fmul_rn(unit.x, w[j].x), __fmul_rn(unit.y, w[j].y));
    }
    out_row[i] = piece;
  }
}

template <bool kAdd>
cudaError_t launch(__nv_bfloat16* out, int out_stride, __nv_bfloat16* x, int x_stride, const __nv_bfloat16* delta, int delta_stride,
                   const float* weight, int n_rows, int n_cols, float eps, cudaStream_t stream) {
  assert(n_cols % 8 == 0 && n_cols <= 8 * kMaxPieces * kThreads && out_stride % 8 == 0 && x_stride % 8 == 0 && delta_stride % 8 == 0);
  if (n_rows == 0) return cudaSuccess;
  const int n_pieces = (n_cols / 8 + kThreads - 1) / kThreads;
  const auto kernel = n_pieces <= 1   ? norm_rows<kAdd, 1>
                      : n_pieces <= 2 ? norm_rows<kAdd, 2>
                      : n_pieces <= 4 ? norm_rows<kAdd, 4>
                                      : norm_rows<kAdd, kMaxPieces>;
  kernel<<<n_rows, kThreads, 0, stream>>>(out, out_stride, x, x_stride, delta, delta_stride, weight, n_cols, eps);
  return cudaGetLastError();
}

}  // namespace

// ---- launchers ----

cudaError_t rms_norm(__nv_bfloat16* out, int out_stride, const __nv_bfloat16* x, int x_stride, const float* weight, int n_rows,
                     int n_cols, float eps, cudaStream_t stream) {
  return launch<false>(out, out_stride, const_cast<__nv_bfloat16*>(x), x_stride, nullptr, 0, weight, n_rows, n_cols, eps, stream);
}

cudaError_t add_rms_norm(__nv_bfloat16* out, int out_stride, __nv_bfloat16* residual, int residual_stride, const __nv_bfloat16* delta,
                         int delta_stride, const float* weight, int n_rows, int n_cols, float eps, cudaStream_t stream) {
  return launch<true>(out, out_stride, residual, residual_stride, delta, delta_stride, weight, n_rows, n_cols, eps, stream);
}

}  // namespace lockstep::kernels
