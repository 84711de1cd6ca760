// KV pages as values: a PageRef shares one page and gives it back by going out of scope. Integers only; the memory the
// ids stand for is the model's. Not for threads. Page ids are handed out in an order that depends on the calls alone.
//   PagePool pool(512);  PageRef page = pool.allocate();  PageRef shared = page;   // back in the pool after both are gone
//
// A page marked by keep() holds something worth finding again. Once nobody refers to it, it counts as free and still is what it
// was, until allocate() needs it: empty pages go first, then kept ones, the one given back longest ago before the others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "records/step_batch.h"

namespace lockstep {

// Pages that hold n tokens: 0 for 0, 1 for 1 .. kPageSize, ...
constexpr int64_t pages_for(int64_t n_tokens) { return n_tokens / kPageSize + (n_tokens % kPageSize != 0); }

class PagePool;

class PageRef {
 public:
  PageRef() = default;  // of no page
  PageRef(const PageRef& other);
  PageRef(PageRef&& other) noexcept : pool_(std::exchange(other.pool_, nullptr)), id_(other.id_) {}
  PageRef& operator=(PageRef other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(id_, other.id_);
    return *this;
  }
  ~PageRef();

  explicit operator bool() const { return pool_ != nullptr; }
  PageId id() const { return id_; }

 private:
  friend class PagePool;
  PageRef(PagePool* pool, PageId id) : pool_(pool), id_(id) {}
  PagePool* pool_ = nullptr;
  PageId id_ = -1;
};

// Outlives its PageRefs and doesn't move. All operations O(1).
class PagePool {
 public:
  explicit PagePool(int64_t n_pages);
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  PageRef allocate();  // needs n_free() > 0; of the empty pages the one given back last comes first

  void keep(PageId id);  // a page that somebody refers to
  bool is_kept(PageId id) const { return state(id).kept; }
  PageRef take_kept(PageId id);  // one more reference, or the first one again

  int64_t n_pages() const { return static_cast<int64_t>(states_.size()); }
  int64_t n_free() const { return static_cast<int64_t>(empty_.size()) + n_idle_; }
  int64_t n_used() const { return n_pages() - n_free(); }
  int64_t n_refs(PageId id) const { return state(id).n_refs; }

  // Throws Error unless each page is either empty, once, or idle, once, or referenced.
  void check_integrity() const;

 private:
  friend class PageRef;
  struct State {
    int32_t n_refs = 0;
    bool kept = false;
    PageId older = -1, newer = -1;  // neighbours in the list of idle pages
  };
  State& state(PageId id) { return states_.at(static_cast<size_t>(id)); }
  const State& state(PageId id) const { return states_.at(static_cast<size_t>(id)); }
  void share(PageId id) { ++state(id).n_refs; }
  void release(PageId id) noexcept;
  void leave_idle(PageId id);

  std::vector<State> states_;         // [n_pages]
  std::vector<PageId> empty_;         // a stack; its capacity is n_pages, so that giving back never allocates
  PageId oldest_ = -1, newest_ = -1;  // of the idle pages: kept, and referred to by nobody
  int64_t n_idle_ = 0;
};

inline PageRef::PageRef(const PageRef& other) : pool_(other.pool_), id_(other.id_) {
  if (pool_) pool_->share(id_);
}
inline PageRef::~PageRef() {
  if (pool_) pool_->release(id_);
}

}  // namespace lockstep
