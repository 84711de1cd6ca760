#include "commands/threads.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Threads, CoresAreSharedFairly) {
  EXPECT_EQ(derive_threads(2.0, std::nullopt, 1, 0), 2);    // one rank, two cores
  EXPECT_EQ(derive_threads(0.5, std::nullopt, 4, 0), 1);    // four ranks on two cores
  EXPECT_EQ(derive_threads(16.0, std::nullopt, 4, 0), 16);  // bound: 16 cores of its own
  EXPECT_EQ(derive_threads(64 / 3.0, std::nullopt, 3, 0), 21);
  EXPECT_EQ(derive_threads(1.0 / 3 + 1.0 / 3 + 1.0 / 3 + 1.0 / 7 * 7 - 1e-12, std::nullopt, 3, 0), 2);
  EXPECT_EQ(derive_threads(0.0, std::nullopt, 1, 0), 1);
}

TEST(Threads, AQuotaIsTheNodesToShare) {
  EXPECT_EQ(derive_threads(64.0, 8.0, 1, 0), 8);
  EXPECT_EQ(derive_threads(16.0, 8.0, 4, 0), 2);
  EXPECT_EQ(derive_threads(2.0, 64.0, 4, 0), 2);
  EXPECT_EQ(derive_threads(2.0, 0.5, 1, 0), 1);
}

TEST(Threads, TheUsersWordCounts) { EXPECT_EQ(derive_threads(2.0, 1.0, 4, 6), 6); }

TEST(Threads, CpuMax) {
  EXPECT_EQ(parse_cpu_max("150000 100000"), 1.5);
  EXPECT_EQ(parse_cpu_max("max 100000"), std::nullopt);
  EXPECT_EQ(parse_cpu_max("-1 100000"), std::nullopt);
  EXPECT_EQ(parse_cpu_max(""), std::nullopt);
  EXPECT_EQ(parse_cpu_max("100000"), std::nullopt);
  EXPECT_EQ(parse_cpu_max("100000 0"), std::nullopt);
}

}  // namespace
}  // namespace lockstep
