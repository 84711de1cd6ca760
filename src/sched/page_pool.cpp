#include "sched/page_pool.h"

#include <limits>

#include "base/error.h"

namespace lockstep {

PagePool::PagePool(int64_t n_pages) {
  check(n_pages >= 0 && n_pages <= std::numeric_limits<PageId>::max(), "a pool of ", n_pages, " pages");
  states_.resize(static_cast<size_t>(n_pages));
  empty_.reserve(static_cast<size_t>(n_pages));
  for (int64_t id = n_pages - 1; id >= 0; --id) empty_.push_back(static_cast<PageId>(id));  // page 0 comes first
}

PageRef PagePool::allocate() {
  check(n_free() > 0, "no free page of ", n_pages());
  PageId id = oldest_;
  if (!empty_.empty()) {
    id = empty_.back();
    empty_.pop_back();
  } else {
    leave_idle(id);
  }
  state(id) = {.n_refs = 1};
  return PageRef(this, id);
}

void PagePool::keep(PageId id) {
  check(state(id).n_refs > 0, "page ", id, " is kept, and nobody's");
  state(id).kept = true;
}

PageRef PagePool::take_kept(PageId id) {
  check(is_kept(id), "page ", id, " is taken, and not kept");
  if (state(id).n_refs == 0) leave_idle(id);
  share(id);
  return PageRef(this, id);
}

void PagePool::release(PageId id) noexcept {
  State& page = states_[static_cast<size_t>(id)];
  if (--page.n_refs > 0) return;
  if (!page.kept) {
    empty_.push_back(id);
    return;
  }
  page.older = newest_;
  page.newer = -1;
  (newest_ >= 0 ? states_[static_cast<size_t>(newest_)].newer : oldest_) = id;
  newest_ = id;
  ++n_idle_;
}

void PagePool::leave_idle(PageId id) {
  const State& page = state(id);
  (page.older >= 0 ? state(page.older).newer : oldest_) = page.newer;
  (page.newer >= 0 ? state(page.newer).older : newest_) = page.older;
  --n_idle_;
}

void PagePool::check_integrity() const {
  std::vector<bool> is_free(states_.size(), false);
  const auto count = [&](PageId id) {
    check(id >= 0 && id < n_pages(), "free page ", id, " of ", n_pages());
    check(!is_free[static_cast<size_t>(id)], "page ", id, " is free twice");
    is_free[static_cast<size_t>(id)] = true;
  };
  for (const PageId id : empty_) {
    count(id);
    check(!is_kept(id), "page ", id, " is empty, and kept");
  }
  int64_t n_idle = 0;
  PageId older = -1;
  for (PageId id = oldest_; id >= 0; older = id, id = state(id).newer, ++n_idle) {
    count(id);
    check(is_kept(id) && state(id).older == older, "page ", id, " is idle out of order");
  }
  check(n_idle == n_idle_ && newest_ == older, n_idle, " idle pages of ", n_idle_);
  for (size_t id = 0; id < states_.size(); ++id)
    check(is_free[id] == (states_[id].n_refs == 0), "page ", id, is_free[id] ? " is free" : " is used", " with ",
          states_[id].n_refs, " references");
}

}  // namespace lockstep
