#include "base/units.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Units, Bytes) {
  EXPECT_EQ(parse_bytes("0"), 0u);
  EXPECT_EQ(parse_bytes("123"), 123u);
  EXPECT_EQ(parse_bytes("123B"), 123u);
  EXPECT_EQ(parse_bytes("1k"), 1024u);
  EXPECT_EQ(parse_bytes("512M"), 512u << 20);
  EXPECT_EQ(parse_bytes("8G"), uint64_t{8} << 30);
  EXPECT_EQ(parse_bytes("8g"), uint64_t{8} << 30);
  EXPECT_EQ(parse_bytes("1.5GiB"), uint64_t{3} << 29);
  EXPECT_EQ(parse_bytes("1.5 GiB"), uint64_t{3} << 29);
  EXPECT_EQ(parse_bytes("2GB"), 2000000000u);
  EXPECT_EQ(parse_bytes("2T"), uint64_t{2} << 40);
  EXPECT_EQ(parse_bytes("0.5"), 0u);
  EXPECT_EQ(parse_bytes("18446744073709551615"), UINT64_MAX);
}

TEST(Units, GarbageIsNoSize) {
  for (const char* bad : {"",
                          " ",
                          "G",
                          "-1",
                          "+1",
                          "1X",
                          "1 ",
                          "1  G",
                          "1Gi",
                          "1.G",
                          ".5G",
                          "1.5.5G",
                          "0x10",
                          "1e3",
                          "8 GB x",
                          "8GG",
                          "nan",
                          "inf",
                          "18446744073709551616",
                          "16777216T",
                          "99999999999999999999999G",
                          "18446744073709551615.9K"})
    EXPECT_EQ(parse_bytes(bad), std::nullopt) << bad;
  EXPECT_EQ(parse_bytes(std::string_view("1\0G", 3)), std::nullopt);
}

TEST(Units, Seconds) {
  EXPECT_EQ(parse_seconds("90"), 90);
  EXPECT_EQ(parse_seconds("90s"), 90);
  EXPECT_EQ(parse_seconds("1.5s"), 1.5);
  EXPECT_EQ(parse_seconds("4h"), 14400);
  EXPECT_EQ(parse_seconds("4H"), 14400);
  EXPECT_EQ(parse_seconds("2d"), 172800);
  EXPECT_EQ(parse_seconds("30min"), 1800);
  EXPECT_EQ(parse_seconds("1h30m"), 5400);
  EXPECT_DOUBLE_EQ(parse_seconds("250ms").value_or(0), 0.25);
  EXPECT_EQ(parse_seconds("1:30:00"), 5400);
  EXPECT_EQ(parse_seconds("30:05"), 1805);
  EXPECT_EQ(parse_seconds("1-12:00:00"), 129600);
  EXPECT_EQ(parse_seconds("0"), 0);
}

TEST(Units, GarbageIsNoTime) {
  for (const char* bad :
       {"",           "s",    "-1s",  "1x",  "1:2:3:4",    "1:60", "1:5", ":30", "1:",  "1::00", "1:3.5",
        "30m1h",      "1h1h", "1h30", "1-",  "1-24:00:00", "1-5",  "-5",  "1e3", "inf", "nan",   "99999999999999999999s",
        "9999999999", " 5",   "5 s",  "1:-1"})
    EXPECT_EQ(parse_seconds(bad), std::nullopt) << bad;
}

TEST(Units, Formatted) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(uint64_t{3} << 29), "1.50 GiB");
  EXPECT_EQ(format_bytes(UINT64_MAX), "16.00 EiB");
  EXPECT_EQ(format_seconds(0.35), "350ms");
  EXPECT_EQ(format_seconds(12.34), "12.3s");
  EXPECT_EQ(format_seconds(59.97), "1m00s");
  EXPECT_EQ(format_seconds(125), "2m05s");
  EXPECT_EQ(format_seconds(5400), "1h30m00s");
  EXPECT_EQ(format_seconds(187200), "2d04h00m");
  EXPECT_EQ(format_seconds(-2), "-2.0s");
}

TEST(Units, WhatIsFormattedReadsBack) {
  for (double s = 0.002; s < 1e6; s *= 1.37) {
    const auto back = parse_seconds(format_seconds(s));
    ASSERT_TRUE(back.has_value()) << format_seconds(s);
    EXPECT_NEAR(*back, s, s < 1 ? 0.0005 : s < 60 ? 0.05 : s < 86400 ? 0.5 : 60) << format_seconds(s);
  }
}

}  // namespace
}  // namespace lockstep
