#include "model/host_pages.h"

#include <algorithm>

#include "base/error.h"

namespace lockstep {

namespace {

constexpr size_t kChunk = size_t{256} << 20;

}  // namespace

HostPages::HostPages(Ops& ops, int64_t n_pages, size_t page_bytes)
    : ops_(ops),
      n_pages_(n_pages),
      page_bytes_(page_bytes),
      pages_a_chunk_(std::max<int64_t>(1, static_cast<int64_t>(kChunk / page_bytes))) {}

std::byte* HostPages::at(PageId page) {
  check(page >= 0 && page < n_pages_, "host page ", page, " of ", n_pages_);
  const auto chunk = static_cast<size_t>(page / pages_a_chunk_);
  if (chunks_.size() <= chunk) chunks_.resize(chunk + 1);
  const int64_t first = static_cast<int64_t>(chunk) * pages_a_chunk_;
  if (chunks_[chunk].bytes() == 0)
    chunks_[chunk] = ops_.allocate_host(static_cast<size_t>(std::min(pages_a_chunk_, n_pages_ - first)) * page_bytes_);
  return chunks_[chunk].data() + static_cast<size_t>(page - first) * page_bytes_;
}

size_t HostPages::bytes() const {
  size_t sum = 0;
  for (const Buffer& chunk : chunks_) sum += chunk.bytes();
  return sum;
}

}  // namespace lockstep
