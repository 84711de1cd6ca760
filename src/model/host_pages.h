// Host memory for the KV of preempted sequences: pages by number, each with all layers of this rank. The memory is taken in
// chunks, in order, by a thread of its own that keeps some ahead of the pages asked for, since pinning takes a tenth of a
// second a chunk: a run that preempts nothing takes none.
//   HostPages host(ops, n_pages, page_bytes);  std::byte* page = host.at(3);
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "base/ids.h"
#include "ops/ops.h"

namespace lockstep {

class HostPages {
 public:
  HostPages(Ops& ops, int64_t n_pages, size_t page_bytes);  // ops must outlive it
  ~HostPages();

  std::byte* at(PageId page);  // [page_bytes]; Error (environment) where the host has no memory left
  size_t bytes() const;        // taken so far

 private:
  void take_chunks();

  Ops& ops_;
  int64_t n_pages_;
  size_t page_bytes_;
  int64_t pages_a_chunk_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Buffer> chunks_;  // those taken
  size_t n_wanted_ = 0;        // chunks
  bool over_ = false;
  std::exception_ptr failure_;
  std::thread taker_;  // begun when a page is first asked for
};

}  // namespace lockstep
