// Decode reads 4 head_dim bytes a position and kv head, once, so memory decides. Prefill: 128 query rows a block, 32 a warp; 4 head_dim flops a
// (query, key) pair, so the matrix units decide.
#include "kernels/attention.h"

#include "kernels/attention_kernels.cuh"

namespace lockstep::kernels {

namespace {

template <class Kernel>
cudaError_t allow_memory(Kernel kernel, size_t bytes) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
}

template <int kHeadDim>
cudaError_t launch(const Attention& a, cudaStream_t stream) {
  const int group = a.n_heads / a.n_kv_heads;
  if (a.n_tiles > 0) {
    constexpr size_t kBytes = prefill_memory<kHeadDim>();
    if (const auto error = allow_memory(attend_many<kHeadDim>, kBytes); error != cudaSuccess) return error;
    attend_many<kHeadDim><<<dim3(a.n_tiles, a.n_kv_heads), 32 * kPrefillWarps, kBytes, stream>>>(a);
  }
  if (a.n_each > 0) {
    const int q_rows = group + 1;
    const size_t bytes = each_memory<kHeadDim>(q_rows);
    if (const auto error = allow_memory(attend_each<kHeadDim>, bytes); error != cudaSuccess) return error;
    attend_each<kHeadDim><<<dim3(a.n_kv_heads, (a.n_each + kDecodeWarps - 1) / kDecodeWarps), 32 * kDecodeWarps, bytes, stream>>>(a, q_rows);
  }
  if (a.n_few > 0) {
    const int q_rows = kFewRows / group * group + 1;
    const size_t bytes = few_memory<kHeadDim>(q_rows);
    if (const auto error = allow_memory(attend_few<kHeadDim>, bytes); error != cudaSuccess) return error;
    attend_few<kHeadDim><<<dim3(a.n_kv_heads, a.n_few), 32 * kDecodeWarps, bytes, stream>>>(a, q_rows);
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
