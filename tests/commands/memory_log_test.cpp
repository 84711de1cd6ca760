#include "commands/memory_log.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(MemoryLog, PlannedAndTaken) {
  uint64_t free = uint64_t{140} << 30;
  MemoryLog memory([&] { return free; });
  EXPECT_EQ(memory.line(), "");
  free -= uint64_t{16} << 30;
  memory.add("weights", uint64_t{15} << 30);
  free -= uint64_t{100} << 30;
  memory.add("KV pages", uint64_t{100} << 30);
  free += uint64_t{2} << 30;  // another process ended
  memory.add("work", 0);
  EXPECT_EQ(memory.line(),
            "weights 15.00 GiB planned, 16.00 GiB taken; KV pages 100.00 GiB planned, 100.00 GiB taken; "
            "work 0 B planned, -2.00 GiB taken; 26.00 GiB free");
}

TEST(MemoryLog, WhereNothingIsMeasuredNothingIsSaid) {
  MemoryLog memory(nullptr);
  memory.add("weights", 5);
  EXPECT_EQ(memory.line(), "");
}

}  // namespace
}  // namespace lockstep
