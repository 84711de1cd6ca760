#include "sched/page_pool.h"

#include <limits>

#include "base/error.h"

namespace lockstep {

PagePool::PagePool(int64_t n_pages) {
  check(n_pages >= 0 && n_pages <= std::numeric_limits<PageId>::max(), "a pool of ", n_pages, " pages");
  n_refs_.assign(static_cast<size_t>(n_pages), 0);
  free_.reserve(static_cast<size_t>(n_pages));
  for (int64_t id = n_pages - 1; id >= 0; --id) free_.push_back(static_cast<PageId>(id));  // page 0 comes first
}

PageRef PagePool::allocate() {
  check(!free_.empty(), "no free page of ", n_pages());
  const PageId id = free_.back();
  free_.pop_back();
  n_refs_[static_cast<size_t>(id)] = 1;
  return PageRef(this, id);
}

void PagePool::release(PageId id) noexcept {
  if (--n_refs_[static_cast<size_t>(id)] == 0) free_.push_back(id);
}

void PagePool::check_integrity() const {
  std::vector<bool> is_free(n_refs_.size(), false);
  for (const PageId id : free_) {
    check(id >= 0 && id < n_pages(), "free page ", id, " of ", n_pages());
    check(!is_free[static_cast<size_t>(id)], "page ", id, " is free twice");
    is_free[static_cast<size_t>(id)] = true;
  }
  for (size_t id = 0; id < n_refs_.size(); ++id)
    check(is_free[id] ? n_refs_[id] == 0 : n_refs_[id] > 0, "page ", id, is_free[id] ? " is free" : " is used", " with ",
          n_refs_[id], " references");
}

}  // namespace lockstep
