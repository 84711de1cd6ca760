#include "model/host_pages.h"

#include <algorithm>

#include "base/error.h"

namespace lockstep {

namespace {

constexpr size_t kChunk = size_t{256} << 20, kAhead = 3;

}  // namespace

HostPages::HostPages(Ops& ops, int64_t n_pages, size_t page_bytes)
    : ops_(ops),
      n_pages_(n_pages),
      page_bytes_(page_bytes),
      pages_a_chunk_(std::max<int64_t>(1, static_cast<int64_t>(kChunk / page_bytes))) {}

HostPages::~HostPages() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  if (taker_.joinable()) taker_.join();
}

std::byte* HostPages::at(PageId page) {
  check(page >= 0 && page < n_pages_, "host page ", page, " of ", n_pages_);
  const auto chunk = static_cast<size_t>(page / pages_a_chunk_);
  const auto n_chunks = static_cast<size_t>((n_pages_ + pages_a_chunk_ - 1) / pages_a_chunk_);
  std::unique_lock lock(mutex_);
  if (const size_t wanted = std::min(chunk + 1 + kAhead, n_chunks); wanted > n_wanted_) {
    n_wanted_ = wanted;
    changed_.notify_all();
  }
  if (!taker_.joinable()) taker_ = std::thread([this] { take_chunks(); });
  changed_.wait(lock, [&] { return chunks_.size() > chunk || failure_; });
  if (chunks_.size() <= chunk) std::rethrow_exception(failure_);
  return chunks_[chunk].data() + static_cast<size_t>(page % pages_a_chunk_) * page_bytes_;
}

void HostPages::take_chunks() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return over_ || chunks_.size() < n_wanted_; });
    if (over_) return;
    const int64_t n = std::min(pages_a_chunk_, n_pages_ - static_cast<int64_t>(chunks_.size()) * pages_a_chunk_);
    lock.unlock();
    Buffer chunk;
    std::exception_ptr failure;
    try {
      chunk = ops_.allocate_host(static_cast<size_t>(n) * page_bytes_);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure)
      failure_ = failure;
    else
      chunks_.push_back(std::move(chunk));
    changed_.notify_all();
    if (failure) return;
  }
}

size_t HostPages::bytes() const {
  const std::lock_guard lock(mutex_);
  size_t sum = 0;
  for (const Buffer& chunk : chunks_) sum += chunk.bytes();
  return sum;
}

}  // namespace lockstep
