// Log, signals, phases: what a process says and hears.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <thread>

#include "base/log.h"
#include "base/phase_timer.h"
#include "base/signals.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

std::string logged(const LogPlace& place, const char* level) {
  if (level != nullptr)
    ::setenv("LOCKSTEP_LOG", level, 1);
  else
    ::unsetenv("LOCKSTEP_LOG");
  ::testing::internal::CaptureStderr();
  init_log(place);
  log_debug("d", 1);
  log_info("i", 2, " 100% {}");
  log_warning("w", 3);
  log_error("e", 4);
  ::unsetenv("LOCKSTEP_LOG");
  return ::testing::internal::GetCapturedStderr();
}

TEST(Log, OneRankHasNoPrefix) {
  const std::string out = logged({.host = "node", .rank = 0, .size = 1}, nullptr);
  EXPECT_THAT(out, MatchesRegex("..:..:.. i2 100% \\{\\}\n..:..:.. warning: w3\n..:..:.. error: e4\n")) << out;
}

TEST(Log, EveryLineOfManyRanksSaysWhose) {
  const LogPlace place{.host = "no%de", .rank = 3, .size = 8, .mesh_place = "d0p1t1"};
  EXPECT_EQ(log_prefix(place), "[no%de r3/8 d0p1t1]");
  const std::string out = logged(place, nullptr);
  EXPECT_THAT(out, MatchesRegex("..:..:.. \\[no%de r3/8 d0p1t1\\] warning: w3\n..:..:.. \\[no%de r3/8 d0p1t1\\] error: e4\n"))
      << out;
  EXPECT_THAT(logged({.host = "a", .rank = 0, .size = 2}, nullptr), HasSubstr("[a r0/2] i2"));
}

TEST(Log, TheVariableSetsTheLevelOfAllRanks) {
  EXPECT_THAT(logged({.host = "a", .rank = 1, .size = 2}, "debug"), HasSubstr("[a r1/2] debug: d1"));
  EXPECT_THAT(logged({}, "error"), Not(HasSubstr("w3")));
  EXPECT_EQ(logged({}, "off"), "");
  ::setenv("LOCKSTEP_LOG", "loud", 1);
  EXPECT_THROW(init_log({}), Error);
  ::unsetenv("LOCKSTEP_LOG");
  init_log({});
}

TEST(SignalsDeathTest, LongWorkIsLeftAfterASignal) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        catch_stop_signals();
        leave_if_stopped();
        std::raise(SIGTERM);
        leave_if_stopped(60);  // it came less than 60 s ago
        try {
          leave_if_stopped();
        } catch (const Error& e) {
          std::_Exit(e.code == ExitCode::stopped && std::string(e.what()).find("SIGTERM") != std::string::npos ? 0 : 2);
        }
        std::_Exit(3);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(SignalsDeathTest, TheFirstSetsAFlagTheSecondEnds) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        catch_stop_signals();
        if (stop_requested()) std::_Exit(1);
        std::raise(SIGUSR1);
        std::raise(SIGUSR1);  // an echo
        if (!stop_requested() || std::string(stop_signal_name()) != "SIGUSR1") std::_Exit(2);
        std::raise(SIGTERM);
        std::_Exit(3);
      },
      ::testing::KilledBySignal(SIGTERM), "");
  EXPECT_EXIT(
      {
        catch_stop_signals();
        std::raise(SIGINT);
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        std::raise(SIGINT);
        std::_Exit(3);
      },
      ::testing::KilledBySignal(SIGINT), "");
}

TEST(SignalsDeathTest, AClosedPipeDoesNotEndTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        catch_stop_signals();
        std::raise(SIGPIPE);
        std::_Exit(stop_requested() ? 1 : 0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(PhaseTimer, PhasesFollowEachOther) {
  PhaseTimer timer;
  timer.begin("open");
  timer.begin("load");
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  timer.begin("open");
  timer.end();
  timer.end();
  ASSERT_EQ(timer.phases().size(), 2u);
  EXPECT_EQ(timer.phases()[0].name, "open");
  EXPECT_EQ(timer.phases()[1].name, "load");
  EXPECT_GE(timer.phases()[1].seconds, 0.005);
  EXPECT_LE(timer.phases()[0].start_s, timer.phases()[1].start_s);
  EXPECT_LE(timer.phases()[0].seconds + timer.phases()[1].seconds, timer.now_s());
}

}  // namespace
}  // namespace lockstep
