#include "comm/roll_call.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/error.h"
#include "comm/thread_comm.h"

namespace lockstep {
namespace {

const std::vector<std::string> kNames = {"r4 on node03, GPU 0", "r5 on node03, GPU 1", "r6 on node04, GPU 0"};

TEST(RollCall, AllThere) {
  auto comms = make_thread_comms(3);
  std::vector<std::jthread> threads;
  for (const auto& comm : comms)
    threads.emplace_back([&comm] {
      RollCall roll(*comm, kNames);
      for (int i = 0; i < 100; ++i) ASSERT_NO_THROW(roll.call("beginning", 60));
    });
}

TEST(RollCall, TheOneThatStaysAwayIsNamedByAllOthers) {
  for (int late = 0; late < 3; ++late)
    for (int r = 0; r < 3; ++r) {
      if (r == late) continue;
      auto comms = make_thread_comms(3);
      comms[3 - r - late]->post({}, r);  // the third has answered
      RollCall roll(*comms[r], kNames);
      try {
        roll.call("joining", 0.01);
        ADD_FAILURE() << "nobody is missed";
      } catch (const Error& e) {
        EXPECT_EQ(e.code, ExitCode::communication);
        EXPECT_EQ(std::string(e.what()), concat("joining: ", kNames[r], " has waited 0.01 s for ", kNames[late]));
      }
    }
}

TEST(RollCall, AnAnswerToTheNextCallCountsForThatOne) {
  auto comms = make_thread_comms(3);
  RollCall first(*comms[0], kNames), second(*comms[1], kNames), third(*comms[2], kNames);
  comms[1]->post({}, 0), comms[1]->post({}, 0);  // it has gone ahead
  EXPECT_EQ(first.missing(1), concat(kNames[0], "; ", kNames[2]));
  EXPECT_EQ(first.missing(2), concat(kNames[0], "; ", kNames[2]));
  EXPECT_EQ(first.missing(3), concat(kNames[0], "; ", kNames[1], "; ", kNames[2]));
  comms[2]->post({}, 0);
  first.call("beginning", 60);
  EXPECT_EQ(first.missing(2), concat(kNames[0], "; ", kNames[2]));
  EXPECT_THROW(RollCall(*comms[0], {"r4"}), Error);
}

}  // namespace
}  // namespace lockstep
