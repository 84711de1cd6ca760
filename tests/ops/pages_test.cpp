// KV pages that go to the host and come back: all layers of them, to other places, and nothing else of the pool.
#include <numeric>

#include "tests/ops/devices.h"

namespace lockstep {
namespace {

using Pages = OpsTest;

constexpr int64_t kLayers = 3, kPages = 7, kPageElements = 16 * 24;  // some multiple of 16 bytes

// The pool as a matrix: row layer * kPages + page is one page of one layer.
struct Pool {
  explicit Pool(Ops& ops, DType dtype, const std::vector<float>& values)
      : matrix(ops, dtype, kLayers * kPages, kPageElements, values, 0),
        pool{matrix.view.data, kLayers, kPages, kPageElements * size_of(dtype)} {}
  Matrix matrix;
  KvPool pool;
};

void copy_row(std::vector<float>& to, int64_t to_row, const std::vector<float>& from, int64_t from_row) {
  std::copy_n(from.begin() + from_row * kPageElements, kPageElements, to.begin() + to_row * kPageElements);
}

TEST_P(Pages, GoToTheHostAndComeBackElsewhere) {
  const std::vector<float> first = random_values(kLayers * kPages * kPageElements, 1, dtype);
  const std::vector<float> second = random_values(kLayers * kPages * kPageElements, 2, dtype);
  const Pool a(*ops, dtype, first);
  const size_t host_page_bytes = kLayers * a.pool.page_bytes;
  const Buffer host = ops->allocate_host(4 * host_page_bytes);
  const auto on_host = [&](PageId page, int64_t i) {
    return HostPage{page, host.data() + static_cast<size_t>(i) * host_page_bytes};
  };
  ops->copy_pages(PageWay::to_host, a.pool, std::vector{on_host(5, 2), on_host(0, 1), on_host(6, 3)});
  EXPECT_TRUE(same_bytes(a.matrix.values(), first)) << "what is saved stays where it is";
  ops->upload(a.matrix.view, second.data());
  ops->copy_pages(PageWay::from_host, a.pool, std::vector{on_host(0, 3), on_host(3, 2)});
  std::vector<float> expected = second;
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    copy_row(expected, layer * kPages + 0, first, layer * kPages + 6);
    copy_row(expected, layer * kPages + 3, first, layer * kPages + 5);
  }
  EXPECT_TRUE(same_bytes(a.matrix.values(), expected));
}

// A page saved and written in one breath holds what it held before.
TEST_P(Pages, AreCopiedInOrder) {
  const std::vector<float> first = random_values(kLayers * kPages * kPageElements, 1, dtype);
  const Pool a(*ops, dtype, first);
  const size_t host_page_bytes = kLayers * a.pool.page_bytes;
  const Buffer host = ops->allocate_host(2 * host_page_bytes);
  std::byte* const one = host.data();
  std::byte* const other = one + host_page_bytes;
  ops->copy_pages(PageWay::to_host, a.pool, std::vector<HostPage>{{1, one}, {2, other}});
  ops->copy_pages(PageWay::from_host, a.pool, std::vector<HostPage>{{2, one}, {1, other}});
  ops->copy_pages(PageWay::to_host, a.pool, std::vector<HostPage>{{4, one}});
  ops->copy_pages(PageWay::from_host, a.pool, std::vector<HostPage>{{6, one}});
  std::vector<float> expected = first;
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    copy_row(expected, layer * kPages + 1, first, layer * kPages + 2);
    copy_row(expected, layer * kPages + 2, first, layer * kPages + 1);
    copy_row(expected, layer * kPages + 6, first, layer * kPages + 4);
  }
  EXPECT_TRUE(same_bytes(a.matrix.values(), expected));
}

// More than one launch of a GPU takes.
TEST_P(Pages, AnyNumberAtATime) {
  constexpr int64_t n = 600;
  const std::vector<float> first = random_values(n * 8, 1, dtype);
  const Matrix pages(*ops, dtype, n, 8, first, 0);
  const KvPool pool{pages.view.data, 1, n, 8 * size_of(dtype)};
  const Buffer host = ops->allocate_host(n * pool.page_bytes);
  std::vector<HostPage> out, back;
  for (int64_t i = 0; i < n; ++i) {
    std::byte* at = host.data() + static_cast<size_t>(i) * pool.page_bytes;
    out.push_back({static_cast<PageId>(i), at});
    back.push_back({static_cast<PageId>((i + 1) % n), at});
  }
  ops->copy_pages(PageWay::to_host, pool, {});
  ops->copy_pages(PageWay::to_host, pool, out);
  ops->copy_pages(PageWay::from_host, pool, back);
  std::vector<float> expected = first;
  std::rotate(expected.begin(), expected.end() - 8, expected.end());
  EXPECT_TRUE(same_bytes(pages.values(), expected));
}

TEST_P(Pages, AnUnknownPageIsRefused) {
  const Pool a(*ops, dtype, random_values(kLayers * kPages * kPageElements, 1, dtype));
  const Buffer host = ops->allocate_host(kLayers * a.pool.page_bytes);
  EXPECT_THROW(ops->copy_pages(PageWay::to_host, a.pool, std::vector<HostPage>{{kPages, host.data()}}), Error);
  EXPECT_THROW(ops->copy_pages(PageWay::from_host, a.pool, std::vector<HostPage>{{-1, host.data()}}), Error);
}

INSTANTIATE_TEST_SUITE_P(Cpu, Pages, cpu_cases(), case_name);
INSTANTIATE_TEST_SUITE_P(Apart, Pages, apart_cases(), case_name);
INSTANTIATE_TEST_SUITE_P(Cuda, Pages, cuda_cases(), case_name);

}  // namespace
}  // namespace lockstep
