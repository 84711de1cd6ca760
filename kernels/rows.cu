// Memory decides all of these: 2 to 6 bytes moved an element, a few flops. One block a row, neighbouring threads on neighbouring
// elements; eight bf16 (16 bytes) a thread at a time where rows allow it.
#include "kernels/rows.h"

namespace lockstep::kernels {

// ---- kernels ----

namespace {

constexpr int kThreads = 256;

struct alignas(16) Piece {
  __nv_bfloat16 element[8];
};

bool in_pieces(int n_cols, int a, int b) { return n_cols % 8 == 0 && a % 8 == 0 && b % 8 == 0; }

// Copies n_cols elements between rows that `source` chooses.
template <class Source>
__global__ void __launch_bounds__(kThreads) copy_rows(__nv_bfloat16* out, int out_stride, Source source, int n_cols, bool pieces) {
  const __nv_bfloat16* from = source(blockIdx.x);
  __nv_bfloat16* to = out + static_cast<size_t>(blockIdx.x) * out_stride;
  if (pieces) {
    for (int i = threadIdx.x; i < n_cols / 8; i += kThreads)
      reinterpret_cast<Piece*>(to)[i] = reinterpret_cast<const Piece*>(from)[i];
  } else {
    for (int i = threadIdx.x; i < n_cols; i += kThreads) to[i] = from[i];
  }
}

struct TableRow {
  const __nv_bfloat16* table;
  size_t n_cols;
  const int32_t *tokens, *slots;
  __device__ const __nv_bfloat16* operator()(int row) const {
    const int32_t token = tokens[row];
    return table + static_cast<size_t>(token >= 0 ? token : slots[~token]) * n_cols;
  }
};

struct NamedRow {
  const __nv_bfloat16* x;
  size_t stride;
  const int32_t* rows;
  __device__ const __nv_bfloat16* operator()(int row) const { return x + rows[row] * stride; }
};

__global__ void __launch_bounds__(kThreads)
    add_rows(__nv_bfloat16* residual, int stride, const __nv_bfloat16* delta, int delta_stride, int n_cols) {
  __nv_bfloat16* to = residual + static_cast<size_t>(blockIdx.x) * stride;
  const __nv_bfloat16* from = delta + static_cast<size_t>(blockIdx.x) * delta_stride;
  for (int i = threadIdx.x; i < n_cols; i += kThreads)
    to[i] = __float2bfloat16_rn(__fadd_rn(__bfloat162float(to[i]), __bfloat162float(from[i])));
}

__device__ float to_float(float x) { return x; }
__device__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ void put(float* to, float x) { *to = x; }
__device__ void put(__nv_bfloat16* to, float x) { *to = __float2bfloat16_rn(x); }

template <class T>
__global__ void __launch_bounds__(kThreads) add_bias_rows(T* out, int stride, const float* bias, int n_cols) {
  T* to = out + static_cast<size_t>(blockIdx.x) * stride;
  for (int i = threadIdx.x; i < n_cols; i += kThreads) put(to + i, __fadd_rn(to_float(to[i]), bias[i]));
}

__device__ __nv_bfloat16 gated(__nv_bfloat16 gate, __nv_bfloat16 up) {
  const float g = __bfloat162float(gate);
  const float silu = __fdiv_rn(g, __fadd_rn(1.0f, expf(-g)));
  return __float2bfloat16_rn(__fmul_rn(silu, __bfloat162float(up)));
}

__global__ void __launch_bounds__(kThreads)
    silu_rows(__nv_bfloat16* out, int stride, const __nv_bfloat16* gate_up, int gate_stride, int n_cols, bool pieces) {
  __nv_bfloat16* to = out + static_cast<size_t>(blockIdx.x) * stride;
  const __nv_bfloat16 *gate = gate_up + static_cast<size_t>(blockIdx.x) * gate_stride, *up = gate + n_cols;
  const int first = blockIdx.y * kThreads + threadIdx.x, step = gridDim.y * kThreads;
  if (pieces) {
    for (int i = first; i < n_cols / 8; i += step) {
      const Piece a = reinterpret_cast<const Piece*>(gate)[i], b = reinterpret_cast<const Piece*>(up)[i];
      Piece c;
#pragma unroll
      for (int j = 0; j < 8; ++j) c.element[j] = gated(a.element[j], b.element[j]);
      reinterpret_cast<Piece*>(to)[i] = c;
    }
  } else {
    for (int i = first; i < n_cols; i += step) to[i] = gated(gate[i], up[i]);
  }
}

__global__ void __launch_bounds__(kThreads) round_rows(__nv_bfloat16* out, int out_stride, const float* x, int64_t n_cols) {
  for (int64_t i = blockIdx.y * kThreads + threadIdx.x; i < n_cols; i += static_cast<int64_t>(gridDim.y) * kThreads)
    out[static_cast<size_t>(blockIdx.x) * out_stride + i] = __float2bfloat16_rn(x[blockIdx.x * n_cols + i]);
}

__global__ void __launch_bounds__(kThreads) widen_rows(float* out, const __nv_bfloat16* x, int x_stride, int64_t n_cols) {
  for (int64_t i = threadIdx.x; i < n_cols; i += kThreads)
    out[blockIdx.x * n_cols + i] = __bfloat162float(x[static_cast<size_t>(blockIdx.x) * x_stride + i]);
}

__global__ void fill_elements(__nv_bfloat16* out, size_t n, uint32_t seed, bool random, float value) {
  for (size_t i = blockIdx.x * size_t{kThreads} + threadIdx.x; i < n; i += gridDim.x * size_t{kThreads}) {
    uint64_t h = (i + 1) * 0x9E3779B97F4A7C15ull + seed;
    h = (h ^ h >> 29) * 0xBF58476D1CE4E5B9ull;
    out[i] = __float2bfloat16_rn(random ? static_cast<float>(static_cast<int32_t>(h >> 32)) * 0x1p-31f : value);
  }
}

__global__ void compare_words(const uint32_t* a, const uint32_t* b, size_t n, int* flag) {
  for (size_t i = blockIdx.x * size_t{kThreads} + threadIdx.x; i < n; i += gridDim.x * size_t{kThreads})
    if (a[i] != b[i]) *flag = 1;
}

}  // namespace

// ---- launchers ----

cudaError_t embed(__nv_bfloat16* out, int out_stride, const __nv_bfloat16* table, int n_cols, const int32_t* tokens,
                  const int32_t* slots, int n_rows, cudaStream_t stream) {
  if (n_rows == 0) return cudaSuccess;
  copy_rows<<<n_rows, kThreads, 0, stream>>>(out, out_stride, TableRow{table, static_cast<size_t>(n_cols), tokens, slots}, n_cols,
                                             in_pieces(n_cols, out_stride, 0));
  return cudaGetLastError();
}

cudaError_t add(__nv_bfloat16* residual, int stride, const __nv_bfloat16* delta, int delta_stride, int n_rows, int n_cols,
                cudaStream_t stream) {
  if (n_rows == 0) return cudaSuccess;
  add_rows<<<n_rows, kThreads, 0, stream>>>(residual, stride, delta, delta_stride, n_cols);
  return cudaGetLastError();
}

cudaError_t add_bias(__nv_bfloat16* out, int stride, const float* bias, int n_rows, int n_cols, cudaStream_t stream) {
  if (n_rows == 0) return cudaSuccess;
  add_bias_rows<<<n_rows, kThreads, 0, stream>>>(out, stride, bias, n_cols);
  return cudaGetLastError();
}

cudaError_t add_bias(float* out, int stride, const float* bias, int n_rows, int n_cols, cudaStream_t stream) {
  if (n_rows == 0) return cudaSuccess;
  add_bias_rows<<<n_rows, kThreads, 0, stream>>>(out, stride, bias, n_cols);
  return cudaGetLastError();
}

cudaError_t silu_mul(__nv_bfloat16* out, int stride, const __nv_bfloat16* gate_up, int gate_stride, int n_rows, int n_cols,
                     cudaStream_t stream) {
  if (n_rows == 0) return cudaSuccess;
  const int n_blocks = (n_cols / 8 + kThreads - 1) / kThreads;
  silu_rows<<<dim3(n_rows, n_blocks > 0 ? n_blocks : 1), kThreads, 0, stream>>>(out, stride, gate_up, gate_stride, n_cols,
                                                                                 in_pieces(n_cols, stride, gate_stride));
  return cudaGetLastError();
}

cudaError_t gather_rows(__nv_bfloat16* out, int out_stride, const __nv_bfloat16* x, int x_stride, const int32_t* rows, int n_rows,
                        int n_cols, cudaStream_t stream) {
  if (n_rows == 0) return cudaSuccess;
  copy_rows<<<n_rows, kThreads, 0, stream>>>(out, out_stride, NamedRow{x, static_cast<size_t>(x_stride), rows}, n_cols,
                                             in_pieces(n_cols, out_stride, x_stride));
  return cudaGetLastError();
}

cudaError_t from_f32(__nv_bfloat16* out, int out_stride, const float* x, int n_rows, int64_t n_cols, cudaStream_t stream) {
  if (n_rows == 0) return cudaSuccess;
  const int64_t n_blocks = (n_cols + kThreads - 1) / kThreads;
  round_rows<<<dim3(n_rows, static_cast<unsigned>(n_blocks < 64 ? n_blocks : 64)), kThreads, 0, stream>>>(out, out_stride, x, n_cols);
  return cudaGetLastError();
}

cudaError_t to_f32(float* out, const __nv_bfloat16* x, int x_stride, int n_rows, int64_t n_cols, cudaStream_t stream) {
  if (n_rows == 0) return cudaSuccess;
  widen_rows<<<n_rows, kThreads, 0, stream>>>(out, x, x_stride, n_cols);
  return cudaGetLastError();
}

cudaError_t fill_random(__nv_bfloat16* out, size_t n, uint32_t seed, cudaStream_t stream) {
  fill_elements<<<1024, kThreads, 0, stream>>>(out, n, seed, true, 0);
  return cudaGetLastError();
}

cudaError_t fill(__nv_bfloat16* out, size_t n, float value, cudaStream_t stream) {
  fill_elements<<<1024, kThreads, 0, stream>>>(out, n, 0, false, value);
  return cudaGetLastError();
}

cudaError_t compare(const void* a, const void* b, size_t n_bytes, int* flag, cudaStream_t stream) {
  compare_words<<<1024, kThreads, 0, stream>>>(static_cast<const uint32_t*>(a), static_cast<const uint32_t*>(b), n_bytes / 4, flag);
  return cudaGetLastError();
}

}  // namespace lockstep::kernels
