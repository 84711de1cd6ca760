#include "comm/watch.h"

#include <gtest/gtest.h>

#include <latch>
#include <utility>

#include "base/error.h"
#include "comm/communicator.h"

namespace lockstep {
namespace {

// The words that `check` throws once there are any.
std::string words_of(const Watch& watch) {
  for (int attempt = 0;; ++attempt) {
    try {
      watch.check();
    } catch (const Error& e) {
      EXPECT_EQ(e.code, ExitCode::communication);
      return e.what();
    }
    relax(attempt);
  }
}

TEST(Watch, AFaultThatComesLaterIsThrownWhereTheProgramLooks) {
  int n_looks = 0;
  std::latch looked_twice(2);
  Watch watch(
      [&] {
        if (n_looks < 2) looked_twice.count_down();
        return std::string(++n_looks < 5 ? "" : "the link to r1 is down");
      },
      {.interval_s = 0.001, .grace_s = 3600});
  looked_twice.wait();
  EXPECT_EQ(words_of(watch), "the link to r1 is down");
  EXPECT_EQ(words_of(watch), "the link to r1 is down");
  EXPECT_EQ(n_looks, 5);
}

TEST(Watch, WithoutAFaultItEndsAtOnce) {
  std::latch looked(1);
  bool first = true;
  Watch watch(
      [&] {
        if (std::exchange(first, false)) looked.count_down();
        return std::string();
      },
      {.interval_s = 0.001, .grace_s = 0});
  looked.wait();
  watch.check();
  const Watch rests([] { return std::string("too late"); }, {.interval_s = 3600, .grace_s = 0});
}

// The program hangs in a wait that nothing ends.
TEST(WatchDeathTest, WhoCannotLookIsEndedWithTheWords) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        Watch watch([] { return std::string("the link to r1 is down"); }, {.interval_s = 0.001, .grace_s = 0.01});
        for (int attempt = 0;; ++attempt) relax(attempt);
      },
      ::testing::ExitedWithCode(static_cast<int>(ExitCode::communication)), "error: the link to r1 is down");
}

}  // namespace
}  // namespace lockstep
