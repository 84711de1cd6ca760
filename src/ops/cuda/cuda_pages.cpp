// KV pages to the host and back.
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

#include "kernels/pages.h"
#include "ops/cuda/cuda_ops.h"

namespace lockstep {

// Touched before it is pinned, so that the driver finds its pages there: large ones where the system gives them.
Buffer CudaOps::allocate_host(size_t bytes) {
  constexpr size_t kLargePage = size_t{2} << 20, kPage = 4096;
  check_cuda(cudaSetDevice(device_), "choosing the GPU");
  const size_t rounded = (std::max<size_t>(bytes, 1) + kLargePage - 1) / kLargePage * kLargePage;
  auto* data = static_cast<std::byte*>(std::aligned_alloc(kLargePage, rounded));
  if (data == nullptr) fail(ExitCode::environment, "no ", rounded, " bytes of host memory are left");
  ::madvise(data, rounded, MADV_HUGEPAGE);
  for (size_t i = 0; i < rounded; i += kPage) data[i] = std::byte{};
  if (const cudaError_t error = cudaHostRegister(data, rounded, cudaHostRegisterDefault); error != cudaSuccess) {
    std::free(data);
    check_cuda(error, concat("pinning ", rounded, " bytes of host memory"));
  }
  return {data, bytes, +[](void* p) {
            cudaHostUnregister(p);
            std::free(p);
          }};
}

void CudaOps::copy_pages(PageWay way, const KvPool& pool, std::span<const HostPage> pages) {
  check(pool.page_bytes % 16 == 0, "KV pages of ", pool.page_bytes, " bytes");
  kernels::CopyPages args{.to_host = way == PageWay::to_host,
                          .n_layers = static_cast<int>(pool.n_layers),
                          .pool = pool.data,
                          .layer_bytes = static_cast<size_t>(pool.n_pages) * pool.page_bytes,
                          .page_bytes = pool.page_bytes};
  for (; !pages.empty(); pages = pages.subspan(static_cast<size_t>(args.n))) {
    args.n = static_cast<int>(std::min<size_t>(pages.size(), kernels::kMostPages));
    for (int i = 0; i < args.n; ++i) {
      const HostPage& page = pages[static_cast<size_t>(i)];
      check(page.page >= 0 && page.page < pool.n_pages, "page ", page.page, " of ", pool.n_pages);
      args.page[i] = page.page, args.host[i] = page.data;
    }
    check_cuda(kernels::copy_pages(args, stream_), "copying KV pages");
  }
}

}  // namespace lockstep
