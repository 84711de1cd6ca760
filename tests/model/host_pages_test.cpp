#include "model/host_pages.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace lockstep {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// Two pages fill a chunk; none of this memory is touched.
TEST(HostPages, ChunksAreTakenAFewAheadOfThePagesAskedFor) {
  const auto ops = make_cpu_ops({});
  HostPages host(*ops, 21, 128 * kMiB);
  EXPECT_EQ(host.bytes(), 0u);
  std::byte* const third = host.at(2);
  EXPECT_GE(host.bytes(), 2 * 256 * kMiB);
  EXPECT_EQ(host.at(3), third + 128 * kMiB);
  EXPECT_EQ(host.at(2), third) << "and stays there";
  EXPECT_LE(host.bytes(), 5 * 256 * kMiB) << "three more at most";
  std::byte* const last = host.at(20);
  EXPECT_EQ(host.bytes(), 21 * 128 * kMiB) << "all, and the last chunk has one page";
  std::byte* const first = host.at(0);
  EXPECT_EQ(host.at(1), first + 128 * kMiB);
  EXPECT_EQ(host.at(20), last);
  EXPECT_EQ(host.at(2), third);
  EXPECT_THROW(host.at(21), Error);
  EXPECT_THROW(host.at(-1), Error);
}

TEST(HostPages, APageMayBeLargerThanAChunk) {
  const auto ops = make_cpu_ops({});
  HostPages host(*ops, 9, 300 * kMiB);
  EXPECT_NE(host.at(1), nullptr);
  EXPECT_GE(host.bytes(), 600 * kMiB);
  EXPECT_LE(host.bytes(), 1500 * kMiB);
}

TEST(HostPages, WithoutMemoryWhoAsksIsTold) {
  const auto ops = make_cpu_ops({});
  HostPages host(*ops, 2, size_t{1} << 62);  // more than is asked of the system
  EXPECT_THROW(host.at(0), Error);
  EXPECT_THROW(host.at(1), Error) << "again";
}

}  // namespace
}  // namespace lockstep
