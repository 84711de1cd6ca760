// Frequencies and angles against their formulas in double, written again here.
#include "model/rope.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

constexpr double kPi = 3.14159265358979323846;

// As Transformers computes rope_type llama3.
double llama3(double f, double factor, double low, double high, double original) {
  const double wavelength = 2 * kPi / f;
  if (wavelength > original / low) return f / factor;
  if (wavelength < original / high) return f;
  const double smooth = (original / wavelength - low) / (high - low);
  return (1 - smooth) * f / factor + smooth * f;
}

TEST(Rope, PlainFrequenciesToTheEye) {
  EXPECT_THAT(inverse_frequencies({.theta = 10000}, 8),
              testing::ElementsAre(1.0f, testing::FloatNear(0.1f, 1e-8f), testing::FloatNear(0.01f, 1e-9f),
                                   testing::FloatNear(0.001f, 1e-10f)));
  EXPECT_THAT(inverse_frequencies({.theta = 10000, .scaling = RopeConfig::Scaling::linear, .factor = 4}, 4),
              testing::ElementsAre(0.25f, testing::FloatNear(0.0025f, 1e-9f)));
}

TEST(Rope, Llama3Frequencies) {  // RC-59
  for (const double theta : {10000.0, 500000.0}) {
    for (const int64_t head_dim : {16, 64, 128}) {
      const RopeConfig rope{.theta = theta,
                            .scaling = RopeConfig::Scaling::llama3,
                            .factor = 8,
                            .low_freq_factor = 1,
                            .high_freq_factor = 4,
                            .original_max_positions = 64};
      const auto got = inverse_frequencies(rope, head_dim);
      int kept = 0, stretched = 0, blended = 0;
      for (int64_t i = 0; i < head_dim / 2; ++i) {
        const double plain = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
        const double want = llama3(plain, 8, 1, 4, 64);
        EXPECT_NEAR(got[i], want, 1e-6 * want) << theta << " " << head_dim << " " << i;
        (want == plain ? kept : want == plain / 8 ? stretched : blended) += 1;
      }
      EXPECT_GT(kept, 0);
      EXPECT_GT(stretched, 0);
      EXPECT_TRUE(blended > 0 || head_dim < 64);
      const auto table = rope_table(rope, head_dim, 201);
      for (const int64_t p : {0, 10, 63, 64, 200}) {
        for (int64_t i = 0; i < head_dim / 2; ++i) {
          const double angle = static_cast<float>(p) * got[i];
          EXPECT_NEAR(table[p * head_dim + i], std::cos(angle), 1e-6) << p << " " << i;
          EXPECT_NEAR(table[p * head_dim + head_dim / 2 + i], std::sin(angle), 1e-6) << p << " " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
