// Bytes decide: n x n_layers x page_bytes over PCIe (generation 5: 64 GB/s each way at most), which 16 bytes a thread
// of all multiprocessors are enough to fill. One launch a sequence, where copies by the driver would be one a page, and
// two-dimensional ones end at 2 GiB a layer.
#include "kernels/pages.h"

#include "kernels/pages_kernels.cuh"

namespace lockstep::kernels {

cudaError_t copy_pages(const CopyPages& a, cudaStream_t stream) {
  constexpr int kThreads = 512;
  copy_one_page<<<dim3(static_cast<unsigned>(a.n), static_cast<unsigned>(a.n_layers)), kThreads, 0, stream>>>(a);
  return cudaGetLastError();
}

}  // namespace lockstep::kernels
