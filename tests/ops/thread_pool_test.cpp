#include "ops/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <numeric>
#include <stdexcept>
#include <vector>

namespace lockstep {
namespace {

TEST(ThreadPool, EachIterationOnceForAnyShape) {
  for (const int n_threads : {1, 2, 3, 9}) {
    ThreadPool pool(n_threads);
    EXPECT_EQ(pool.n_threads(), n_threads);
    for (const int64_t n : {0, 1, 2, 7, 1000}) {
      for (const int64_t grain : {0, 1, 3, 2000}) {
        std::vector<int> count(static_cast<size_t>(n), 0);
        pool.parallel_for(n, grain, [&](int64_t begin, int64_t end, int worker) {
          ASSERT_LT(begin, end);
          ASSERT_TRUE(worker >= 0 && worker < n_threads);
          for (; begin < end; ++begin) ++count[begin];
        });
        EXPECT_EQ(count, std::vector<int>(static_cast<size_t>(n), 1)) << n << " by " << grain;
      }
    }
  }
}

TEST(ThreadPool, ManyLoopsInARow) {
  ThreadPool pool(4);
  std::vector<int64_t> sums(64, 0);
  for (int i = 0; i < 5000; ++i) {
    pool.parallel_for(64, 1, [&](int64_t begin, int64_t end, int) {
      for (; begin < end; ++begin) sums[begin] += begin;
    });
    if (i % 1000 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));  // the others fall asleep
  }
  for (int64_t i = 0; i < 64; ++i) EXPECT_EQ(sums[i], 5000 * i);
}

TEST(ThreadPool, AnExceptionReachesTheCallerAndThePoolLivesOn) {
  ThreadPool pool(3);
  for (int i = 0; i < 20; ++i) {
    EXPECT_THROW(pool.parallel_for(100, 1,
                                   [&](int64_t begin, int64_t, int) {
                                     if (begin == 41) throw std::runtime_error("41");
                                   }),
                 std::runtime_error);
    std::vector<int> seen(100, 0);
    pool.parallel_for(100, 1, [&](int64_t begin, int64_t, int) { seen[begin] = 1; });
    EXPECT_EQ(std::accumulate(seen.begin(), seen.end(), 0), 100);
  }
}

}  // namespace
}  // namespace lockstep
