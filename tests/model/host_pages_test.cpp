#include "model/host_pages.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace lockstep {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// Two pages fill a chunk; none of this memory is touched.
TEST(HostPages, ChunksAreTakenWhenTheyAreNeeded) {
  const auto ops = make_cpu_ops({});
  HostPages host(*ops, 5, 128 * kMiB);
  EXPECT_EQ(host.bytes(), 0u);
  std::byte* const third = host.at(2);
  EXPECT_EQ(host.bytes(), 256 * kMiB);
  EXPECT_EQ(host.at(3), third + 128 * kMiB);
  EXPECT_EQ(host.at(2), third) << "and stays there";
  EXPECT_EQ(host.bytes(), 256 * kMiB);
  std::byte* const last = host.at(4);
  EXPECT_EQ(host.bytes(), 384 * kMiB) << "the last chunk has one page";
  std::byte* const first = host.at(0);
  EXPECT_EQ(host.at(1), first + 128 * kMiB);
  EXPECT_EQ(host.at(4), last);
  EXPECT_EQ(host.bytes(), 640 * kMiB);
  EXPECT_THROW(host.at(5), Error);
  EXPECT_THROW(host.at(-1), Error);
}

TEST(HostPages, APageMayBeLargerThanAChunk) {
  const auto ops = make_cpu_ops({});
  HostPages host(*ops, 3, 300 * kMiB);
  host.at(1);
  EXPECT_EQ(host.bytes(), 300 * kMiB);
}

}  // namespace
}  // namespace lockstep
