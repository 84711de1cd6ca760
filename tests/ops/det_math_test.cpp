#include "base/det_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/philox.h"

namespace lockstep {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

double uniform(uint32_t i, double low, double high) {
  const auto words = philox4x32(5, {i, 0, 0, 0});
  return low + (high - low) * ((words[0] + 0.5) * 0x1p-32 + words[1] * 0x1p-64);
}

TEST(DetMath, ValuesAtSight) {
  double s = 9, c = 9;
  det_sin_cos(0, &s, &c);
  EXPECT_EQ(s, 0);
  EXPECT_EQ(c, 1);
  EXPECT_EQ(det_exp(0), 1);
  EXPECT_NEAR(det_exp(1), 2.718281828459045, 1e-15);
  EXPECT_EQ(det_log(1), 0);
  EXPECT_EQ(det_log(2), 0x1.62e42fefa39efp-1);
  EXPECT_EQ(det_pow(3, 0), 1);
  EXPECT_NEAR(det_pow(2, 10), 1024, 1e-11);
}

TEST(DetMath, Edges) {
  EXPECT_EQ(det_exp(-1000), 0);
  EXPECT_EQ(det_exp(-kInf), 0);
  EXPECT_EQ(det_exp(1000), kInf);
  EXPECT_TRUE(std::isnan(det_exp(NAN)));
  EXPECT_EQ(det_log(0), -kInf);
  EXPECT_EQ(det_log(kInf), kInf);
  EXPECT_TRUE(std::isnan(det_log(-1)));
  EXPECT_TRUE(std::isnan(det_log(NAN)));
  EXPECT_NEAR(det_log(5e-324), -744.4400719213812, 1e-12);
  double s = 0, c = 0;
  det_sin_cos(kInf, &s, &c);
  EXPECT_TRUE(std::isnan(s) && std::isnan(c));
}

// libm serves as the reference here: it is within an ulp or so of the truth, which is far below the bounds.
TEST(DetMath, StaysWithinItsBounds) {
  double worst_exp = 0, worst_log = 0, worst_sin = 0, worst_pow = 0;
  for (uint32_t i = 0; i < 200000; ++i) {
    const double x = uniform(i, -700, 700), small = uniform(i, -1, 1), angle = uniform(i, -1, 1) * std::pow(10.0, i % 8);
    worst_exp = std::max({worst_exp, std::abs(det_exp(x) / std::exp(x) - 1), std::abs(det_exp(small) / std::exp(small) - 1)});
    const double near_one = 1 + small * 0.6, wide = std::exp(x);
    worst_log = std::max(
        {worst_log, std::abs(det_log(near_one) / std::log(near_one) - 1), std::abs(det_log(wide) / std::log(wide) - 1)});
    double s = 0, c = 0;
    det_sin_cos(angle, &s, &c);
    worst_sin = std::max({worst_sin, std::abs(s - std::sin(angle)), std::abs(c - std::cos(angle))});
    const double theta = 10000 * (1 + std::abs(x)), power = -std::abs(small) * 2;
    worst_pow = std::max(
        worst_pow, std::abs(det_pow(theta, power) / std::pow(theta, power) - 1) / (1 + std::abs(power * std::log(theta))));
  }
  EXPECT_LT(worst_exp, 1e-15);
  EXPECT_LT(worst_log, 1e-15);
  EXPECT_LT(worst_sin, 1e-15);
  EXPECT_LT(worst_pow, 1e-15);
}

// Written down from one machine: another one must give the same.
TEST(DetMath, BitsOfRecord) {
  uint64_t mix = 0;
  for (uint32_t i = 0; i < 1000; ++i) {
    double s = 0, c = 0;
    det_sin_cos(uniform(i, -1e6, 1e6), &s, &c);
    for (const double v :
         {det_exp(uniform(i, -700, 700)), det_log(uniform(i, 0, 1e9)), det_pow(1 + i, uniform(i, -2, 2)), s, c}) {
      mix = (mix ^ std::bit_cast<uint64_t>(v)) * 0x9E3779B97F4A7C15u;
      mix ^= mix >> 29;
    }
  }
  EXPECT_EQ(mix, 8034720937542038966u);
}

}  // namespace
}  // namespace lockstep
