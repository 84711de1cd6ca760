#include "checkpoint/printable.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Printable, KeepsTextDropsControls) {
  EXPECT_EQ(printable("blk.0 Grüße"), "blk.0 Grüße");
  EXPECT_EQ(printable(std::string("a\0\x1B[2J\n\x7F", 8)), "a��[2J��");
  EXPECT_EQ(printable("\xC2\x9B\xFF"), "��");
  EXPECT_EQ(in_quotes("x"), "'x'");
  EXPECT_EQ(printable(std::string(120, 'x')), std::string(120, 'x'));
  EXPECT_EQ(printable(std::string(121, 'x')), std::string(120, 'x') + "...");
}

}  // namespace
}  // namespace lockstep
