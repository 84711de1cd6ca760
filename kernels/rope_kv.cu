// A block a token; head_dim / 16 threads a head, each with 8 elements of the lower half and the 8 of the upper half that they
// are rotated with, so that all reads and writes are of 16 bytes. 4 bytes moved an element, about 10 flops; memory decides:
// 0.72 of a copy's rate on an H200.
#include "kernels/rope_kv.h"

#include <algorithm>
#include <cassert>

namespace lockstep::kernels {

// ---- kernel ----

namespace {

constexpr int kMostThreads = 512;

struct alignas(16) Eight {
  __nv_bfloat162 pair[4];
  __device__ float at(int i) const { return i % 2 == 0 ? __low2float(pair[i / 2]) : __high2float(pair[i / 2]); }
};
__device__ inline Eight rounded(const float (&v)[8]) {
  Eight e;
  for (int j = 0; j < 4; ++j) e.pair[j] = __floats2bfloat162_rn(v[2 * j], v[2 * j + 1]);
  return e;
}

__global__ void __launch_bounds__(kMostThreads) rope_heads(RopeKv a) {
  const int token = blockIdx.x, half = a.head_dim / 2, n_a_head = a.head_dim / 16;
  const int n_all = a.n_heads + 2 * a.n_kv_heads, n_units = n_all * n_a_head;
  const int position = a.positions[token], page = a.token_pages[token];
  for (int begin = 0; begin < n_units; begin += blockDim.x) {  // all threads, since those of a head add up
    const int unit = begin + threadIdx.x, head = min(unit / n_a_head, n_all - 1), piece = unit % n_a_head, from = piece * 8;
    const __nv_bfloat16* x = a.qkv + static_cast<size_t>(token) * a.qkv_stride + head * a.head_dim + from;
    const bool is_q = head < a.n_heads, is_v = head >= a.n_heads + a.n_kv_heads;
    Eight low = *reinterpret_cast<const Eight*>(x), high = *reinterpret_cast<const Eight*>(x + half);

    if (!is_v) {
      float l[8], h[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) l[i] = low.at(i), h[i] = high.at(i);
      const float *rope = a.rope + static_cast<size_t>(position) * a.head_dim + from, *norm = is_q ? a.q_norm : a.k_norm;
      if (norm != nullptr) {  // as in rms_norm
        float sum = 0;
#pragma unroll
        for (int i = 0; i < 8; ++i) sum = __fmaf_rn(h[i], h[i], __fmaf_rn(l[i], l[i], sum));
        const unsigned of_head = ((1u << n_a_head) - 1) << threadIdx.x % 32 / n_a_head * n_a_head;  // lanes
        for (int offset = n_a_head / 2; offset > 0; offset /= 2) sum = __fadd_rn(sum, __shfl_xor_sync(of_head, sum, offset));
        const float scale = isinf(sum)
                                ? __int_as_float(0x7FC00000)
                                : __frcp_rn(__fsqrt_rn(__fadd_rn(__fdiv_rn(sum, static_cast<float>(a.head_dim)), a.eps)));
        const auto unit_of = [scale](float v) { return __bfloat162float(__float2bfloat16_rn(__fmul_rn(v, scale))); };
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          l[i] = __fmul_rn(unit_of(l[i]), norm[from + i]);
          h[i] = __fmul_rn(unit_of(h[i]), norm[half + from + i]);
        }
      }
      float new_low[8], new_high[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float c = rope[i], s = rope[half + i];
        new_low[i] = __fmaf_rn(l[i], c, -__fmul_rn(h[i], s));
        new_high[i] = __fmaf_rn(h[i], c, __fmul_rn(l[i], s));
      }
      low = rounded(new_low), high = rounded(new_high);
    }

    auto *to_low = const_cast<__nv_bfloat16*>(x), *to_high = to_low + half;
    if (!is_q) {
      const int kv_head = is_v ? head - a.n_heads - a.n_kv_heads : head - a.n_heads;
      const size_t row = (static_cast<size_t>(page) * a.n_kv_heads + kv_head) * 2 * kPagePositions +
                         (is_v ? kPagePositions : 0) + position % kPagePositions;
      __nv_bfloat16* to = a.pages + row * a.head_dim;
      to_low = to + place_of_piece(a.head_dim, position % kPagePositions, piece) * 8;
      to_high = to + place_of_piece(a.head_dim, position % kPagePositions, n_a_head + piece) * 8;
    }
    if (unit < n_units && (is_q || page >= 0)) {
      *reinterpret_cast<Eight*>(to_low) = low;
      *reinterpret_cast<Eight*>(to_high) = high;
    }
  }
}

}  // namespace

// ---- launcher ----

cudaError_t rope_store_kv(const RopeKv& a, cudaStream_t stream) {
  const int n_a_head = a.head_dim / 16;
  assert(a.head_dim % 16 == 0 && a.head_dim <= 256 && (n_a_head & (n_a_head - 1)) == 0 && a.qkv_stride % 8 == 0);
  if (a.n_tokens == 0) return cudaSuccess;
  const int n_warps = ((a.n_heads + 2 * a.n_kv_heads) * n_a_head + 31) / 32;
  rope_heads<<<a.n_tokens, std::min(32 * n_warps, kMostThreads), 0, stream>>>(a);
  return cudaGetLastError();
}

}  // namespace lockstep::kernels
