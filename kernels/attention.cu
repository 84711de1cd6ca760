// Decode reads 4 head_dim bytes a position and kv head, once, so memory decides: 0.94 to 1.0 of a copy's rate on an H200; what
// it spends on instructions comes off the power that products get. For up to eight query rows of head size 128 a chunk of 32 KB
// takes a warp about 620 instructions on sm_90 (64 products, 64 reads of shared memory, 8 copies of 4 KB each at about 20).
// Prefill: 128 query rows a block; 4 head_dim flops a (query, key) pair, so the matrix units decide: on sm_90a 0.56 of a large
// product's rate at 8192 positions, 0.38 at 1024; the rest goes to exponentials, and at short lengths to the chunks at a tile's
// end.
#include "kernels/attention.h"

#include <type_traits>

#include "kernels/attention_decode.cuh"
#include "kernels/attention_kernels.cuh"
#include "kernels/attention_wgmma.cuh"
#include "kernels/this_gpu.h"

namespace lockstep::kernels {

namespace {

template <class Kernel>
cudaError_t allow_memory(Kernel kernel, size_t bytes) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
}

template <int kHeadDim>
cudaError_t launch_tiles(const Attention& a, cudaStream_t stream) {
#ifdef LOCKSTEP_WGMMA
  if constexpr (kHeadDim >= 64)
    if (of_this_gpu(cudaDevAttrComputeCapabilityMajor) == 9 && of_this_gpu(cudaDevAttrComputeCapabilityMinor) == 0) {
      constexpr size_t kWgmmaBytes = wgmma_memory<kHeadDim>();
      if (const auto error = allow_memory(attend_tile_rows<kHeadDim>, kWgmmaBytes); error != cudaSuccess) return error;
      const int n_blocks = min(a.n_tiles * a.n_kv_heads, of_this_gpu(cudaDevAttrMultiProcessorCount));
      attend_tile_rows<kHeadDim><<<n_blocks, kWgmmaThreads, kWgmmaBytes, stream>>>(a);
      return cudaGetLastError();
    }
#endif
  constexpr size_t kBytes = prefill_memory<kHeadDim>();
  if (const auto error = allow_memory(attend_many_rows<kHeadDim>, kBytes); error != cudaSuccess) return error;
  attend_many_rows<kHeadDim><<<dim3(a.n_tiles, a.n_kv_heads), 32 * kPrefillWarps, kBytes, stream>>>(a);
  return cudaGetLastError();
}

template <int kHeadDim, int kRows>
cudaError_t launch_few(const Attention& a, cudaStream_t stream) {
  const auto kernel = attend_few_rows<kHeadDim, kRows>;
  const size_t bytes = few_memory<kHeadDim, kRows>(a.few_rows);
  if (const auto error = allow_memory(kernel, bytes); error != cudaSuccess) return error;
  kernel<<<dim3(a.n_kv_heads, a.n_few), 32 * kDecodeWarps, bytes, stream>>>(a);
  return cudaGetLastError();
}

template <int kHeadDim, int kRows>
cudaError_t launch_each(const Attention& a, cudaStream_t stream) {
  const auto kernel = attend_one_token<kHeadDim, kRows>;
  const size_t bytes = each_memory<kHeadDim, kRows>(a.n_heads / a.n_kv_heads);
  if (const auto error = allow_memory(kernel, bytes); error != cudaSuccess) return error;
  const dim3 grid(a.n_kv_heads, (a.n_each + kDecodeWarps - 1) / kDecodeWarps);
  kernel<<<grid, 32 * kDecodeWarps, bytes, stream>>>(a);
  return cudaGetLastError();
}

template <class Launch>
cudaError_t for_head_dim(int head_dim, Launch launch) {
  switch (head_dim) {
    case 16:
      return launch(std::integral_constant<int, 16>());
    case 32:
      return launch(std::integral_constant<int, 32>());
    case 64:
      return launch(std::integral_constant<int, 64>());
    case 128:
      return launch(std::integral_constant<int, 128>());
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

bool attention_supports(int head_dim) { return head_dim == 16 || head_dim == 32 || head_dim == 64 || head_dim == 128; }

cudaError_t attend_tiles(const Attention& a, cudaStream_t stream) {
  if (a.n_tiles == 0) return cudaSuccess;
  return for_head_dim(a.head_dim, [&](auto d) { return launch_tiles<d>(a, stream); });
}

cudaError_t attend_few(const Attention& a, cudaStream_t stream) {
  if (a.n_few == 0) return cudaSuccess;
  return for_head_dim(a.head_dim, [&](auto d) {
    return a.few_rows <= kEightRows ? launch_few<d, 8>(a, stream) : launch_few<d, 16>(a, stream);
  });
}

cudaError_t attend_each(const Attention& a, cudaStream_t stream) {
  if (a.n_each == 0) return cudaSuccess;
  const int n_rows = a.n_heads / a.n_kv_heads;
  return for_head_dim(
      a.head_dim, [&](auto d) { return n_rows <= kEightRows ? launch_each<d, 8>(a, stream) : launch_each<d, 16>(a, stream); });
}

}  // namespace lockstep::kernels
