// Bytes decide: rows x row_bytes read once here, and written over NVLink once a peer (392 GB/s one way between two H200s); then about two
// microseconds for the numbers to cross.
#include "kernels/push.h"

#include <algorithm>

#include "kernels/push_kernels.cuh"

namespace lockstep::kernels {

cudaError_t push(const Push& a, cudaStream_t stream) {
  constexpr size_t kMostWords = size_t{1} << 30;
  constexpr int kThreads = 512, kMostBlocks = 128;
  const size_t n_words = a.row_bytes / static_cast<size_t>(a.unit) * static_cast<size_t>(a.rows);
  if (n_words >= kMostWords) return cudaErrorInvalidValue;
  const auto n_blocks = static_cast<unsigned>(std::clamp<size_t>((n_words + 4 * kThreads - 1) / (4 * kThreads), 1, kMostBlocks));
  push_columns<<<n_blocks, kThreads, 0, stream>>>(a);
  return cudaGetLastError();
}

cudaError_t await(const Await& a, cudaStream_t stream) {
  await_numbers<<<1, 32, 0, stream>>>(a);
  return cudaGetLastError();
}

}  // namespace lockstep::kernels
