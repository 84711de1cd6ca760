// Host memory for the KV of preempted sequences: pages by number, each with all layers of this rank. The memory is taken in
// chunks, a chunk when a page of it is first asked for: a run that preempts nothing takes none. On a GPU the step
// that needs one waits while it is pinned.
//   HostPages host(ops, n_pages, page_bytes);  std::byte* page = host.at(3);
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "ops/ops.h"

namespace lockstep {

class HostPages {
 public:
  HostPages(Ops& ops, int64_t n_pages, size_t page_bytes);

  std::byte* at(PageId page);  // [page_bytes]; Error (environment) where the host has no memory left
  size_t bytes() const;        // taken so far

 private:
  Ops& ops_;
  int64_t n_pages_;
  size_t page_bytes_;
  int64_t pages_a_chunk_;
  std::vector<Buffer> chunks_;  // [up to the last one taken]  empty where no page was asked for yet
};

}  // namespace lockstep
