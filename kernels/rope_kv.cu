// One warp a head of a token: 4 bytes moved an element, about 10 flops; memory decides.
#include "kernels/rope_kv.h"

#include <cassert>

namespace lockstep::kernels {

// ---- kernel ----

namespace {

constexpr int kWarps = 8;
constexpr int kMaxPairs = 4;  // of (i, i + half) a lane: head_dim up to 256

__global__ void __launch_bounds__(32 * kWarps) rope_heads(RopeKv a) {
  const int lane = threadIdx.x % 32;
  const int n_all = a.n_heads + 2 * a.n_kv_heads;
  const int head = blockIdx.y * kWarps + threadIdx.x / 32;
  if (head >= n_all) return;
  const int token = blockIdx.x, half = a.head_dim / 2;
  __nv_bfloat16* x = a.qkv + static_cast<size_t>(token) * a.qkv_stride + head * a.head_dim;
  const int position = a.positions[token];

  const bool is_q = head < a.n_heads, is_v = head >= a.n_heads + a.n_kv_heads;
  __nv_bfloat16* to = x;
  if (!is_q) {
    if (a.token_pages[token] < 0) return;
    const int kv_head = is_v ? head - a.n_heads - a.n_kv_heads : head - a.n_heads;
    const size_t row = (static_cast<size_t>(a.token_pages[token]) * a.n_kv_heads + kv_head) * 2 * kPagePositions +
                       (is_v ? kPagePositions : 0) + position % kPagePositions;
    to = a.pages + row * a.head_dim;
  }
  if (is_v) {
    for (int i = lane; i < a.head_dim; i += 32) to[i] = x[i];
    return;
  }

  float low[kMaxPairs], high[kMaxPairs], sum = 0;
#pragma unroll
  for (int p = 0; p < kMaxPairs; ++p) {
    const int i = lane + 32 * p;
    low[p] = i < half ? __bfloat162float(x[i]) : 0;
    high[p] = i < half ? __bfloat162float(x[half + i]) : 0;
    sum = __fmaf_rn(low[p], low[p], sum);
    sum = __fmaf_rn(high[p], high[p], sum);
  }
  const float* norm = is_q ? a.q_norm : a.k_norm;
  if (norm != nullptr) {
    for (int offset = 16; offset > 0; offset /= 2) sum = __fadd_rn(sum, __shfl_xor_sync(0xFFFFFFFFu, sum, offset));
    const float scale = isinf(sum) ? __int_as_float(0x7FC00000)  // as in rms_norm
                                   : __frcp_rn(__fsqrt_rn(__fadd_rn(__fdiv_rn(sum, static_cast<float>(a.head_dim)), a.eps)));
    const auto unit = [scale](float v) { return __bfloat162float(__float2bfloat16_rn(__fmul_rn(v, scale))); };
#pragma unroll
    for (int p = 0; p < kMaxPairs; ++p) {
      const int i = lane + 32 * p;
      if (i >= half) break;
      low[p] = __fmul_rn(unit(low[p]), norm[i]);
      high[p] = __fmul_rn(unit(high[p]), norm[half + i]);
    }
  }
  const float* rope = a.rope + static_cast<size_t>(position) * a.head_dim;
#pragma unroll
  for (int p = 0; p < kMaxPairs; ++p) {
    const int i = lane + 32 * p;
    if (i >= half) break;
    const float c = rope[i], s = rope[half + i];
    to[i] = __float2bfloat16_rn(__fmaf_rn(low[p], c, -__fmul_rn(high[p], s)));
    to[half + i] = __float2bfloat16_rn(__fmaf_rn(high[p], c, __fmul_rn(low[p], s)));
  }
}

}  // namespace

// ---- launcher ----

cudaError_t rope_store_kv(const RopeKv& a, cudaStream_t stream) {
  assert(a.head_dim % 2 == 0 && a.head_dim <= 64 * kMaxPairs);
  if (a.n_tokens == 0) return cudaSuccess;
  const int n_all = a.n_heads + 2 * a.n_kv_heads;
  rope_heads<<<dim3(a.n_tokens, (n_all + kWarps - 1) / kWarps), 32 * kWarps, 0, stream>>>(a);
  return cudaGetLastError();
}

}  // namespace lockstep::kernels
