// KV pages to the host and back.
#include <algorithm>

#include "kernels/pages.h"
#include "ops/cuda/cuda_ops.h"

namespace lockstep {

Buffer CudaOps::allocate_host(size_t bytes) { return allocate_pinned(bytes); }

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
