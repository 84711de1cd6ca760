#include "sched/page_pool.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "base/error.h"

namespace lockstep {
namespace {

TEST(PagePool, PagesForTokens) {
  EXPECT_EQ(pages_for(0), 0);
  EXPECT_EQ(pages_for(1), 1);
  EXPECT_EQ(pages_for(kPageSize), 1);
  EXPECT_EQ(pages_for(kPageSize + 1), 2);
}

TEST(PagePool, ScopeEndReturnsThePage) {
  PagePool pool(3);
  {
    const PageRef a = pool.allocate(), b = pool.allocate();
    EXPECT_EQ(a.id(), 0);
    EXPECT_EQ(b.id(), 1);
    EXPECT_EQ(pool.n_used(), 2);
    pool.check_integrity();
  }
  EXPECT_EQ(pool.n_used(), 0);
  pool.check_integrity();
}

TEST(PagePool, CopiesShareAPage) {
  PagePool pool(2);
  PageRef a = pool.allocate();
  PageRef b = a;
  EXPECT_EQ(b.id(), a.id());
  EXPECT_EQ(pool.n_refs(0), 2);
  a = PageRef();
  EXPECT_FALSE(a);
  EXPECT_EQ(pool.n_free(), 1) << "b still holds it";
  PageRef other = pool.allocate();
  EXPECT_EQ(other.id(), 1);
  b = other;  // gives page 0 back, shares page 1
  EXPECT_EQ(pool.n_refs(0), 0);
  EXPECT_EQ(pool.n_refs(1), 2);
  const PageRef& self = b;
  b = self;
  EXPECT_EQ(pool.n_refs(1), 2);
  pool.check_integrity();
}

TEST(PagePool, MovesLeaveNothingBehind) {
  PagePool pool(2);
  PageRef a = pool.allocate();
  PageRef b = std::move(a);
  EXPECT_FALSE(a);  // NOLINT: a moved-from PageRef is empty
  EXPECT_EQ(pool.n_refs(0), 1);
  std::vector<PageRef> pages;
  pages.push_back(std::move(b));
  pages.push_back(pool.allocate());
  EXPECT_EQ(pool.n_free(), 0);
  pages.clear();
  EXPECT_EQ(pool.n_free(), 2);
  pool.check_integrity();
}

TEST(PagePool, AnEmptyPoolThrowsAndStaysWhole) {
  PagePool pool(1);
  const PageRef a = pool.allocate();
  EXPECT_THROW(pool.allocate(), Error);
  pool.check_integrity();
  EXPECT_EQ(pool.n_used(), 1);
  PagePool none(0);
  EXPECT_THROW(none.allocate(), Error);
  EXPECT_THROW(PagePool(-1), Error);
}

TEST(PagePool, TheLastPageGivenBackComesFirst) {
  PagePool pool(4);
  std::vector<PageRef> pages;
  for (int i = 0; i < 4; ++i) pages.push_back(pool.allocate());
  pages[2] = PageRef();
  pages[0] = PageRef();
  EXPECT_EQ(pool.allocate().id(), 0);  // and back at once
  const PageRef a = pool.allocate(), b = pool.allocate();
  EXPECT_EQ(a.id(), 0);
  EXPECT_EQ(b.id(), 2);
}

}  // namespace
}  // namespace lockstep
