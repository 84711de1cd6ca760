// The copy of KV pages, run on the host (on_host.h): each word to its place, and none elsewhere.
#include <gtest/gtest.h>

#include "tests/kernels/on_host.h"  // before the kernels

#include "kernels/pages_kernels.cuh"

namespace lockstep::kernels {

namespace {

constexpr int kLayers = 3, kPoolPages = 6;
constexpr size_t kPageBytes = 16 * 40;  // not a multiple of what the threads move at a time

std::vector<std::byte> numbered(size_t n, size_t seed) {
  std::vector<std::byte> bytes(n);
  for (size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>((i * 31 + i / 256 * 7 + seed) % 251);
  return bytes;
}

TEST(PagesOnHost, EveryLayerOfAPageGoesToItsPlace) {
  for (const bool to_host : {true, false}) {
    std::vector<std::byte> pool = numbered(kLayers * kPoolPages * kPageBytes, 1), host = numbered(4 * kLayers * kPageBytes, 2);
    std::vector<std::byte> expected_pool = pool, expected_host = host;
    CopyPages a{.to_host = to_host,
                .n = 3,
                .n_layers = kLayers,
                .pool = pool.data(),
                .layer_bytes = kPoolPages * kPageBytes,
                .page_bytes = kPageBytes};
    const std::pair<int, size_t> copies[] = {{4, 2}, {0, 0}, {5, 3}};
    for (int i = 0; i < a.n; ++i) {
      const auto [page, place] = copies[i];
      a.page[i] = page;
      a.host[i] = host.data() + place * kLayers * kPageBytes;
      for (size_t layer = 0; layer < kLayers; ++layer) {
        const auto in_pool = static_cast<std::ptrdiff_t>((layer * kPoolPages + static_cast<size_t>(page)) * kPageBytes);
        const auto on_host = static_cast<std::ptrdiff_t>((place * kLayers + layer) * kPageBytes);
        if (to_host)
          std::copy_n(pool.begin() + in_pool, kPageBytes, expected_host.begin() + on_host);
        else
          std::copy_n(host.begin() + on_host, kPageBytes, expected_pool.begin() + in_pool);
      }
    }
    on_host::launch(dim3(3, kLayers), 32, [&] { copy_one_page(a); });
    EXPECT_EQ(pool, expected_pool);
    EXPECT_EQ(host, expected_host);
  }
}

}  // namespace

}  // namespace lockstep::kernels
