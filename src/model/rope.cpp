#include "model/rope.h"

#include "base/det_math.h"
#include "base/error.h"

namespace lockstep {

namespace {

// Low frequencies are stretched by `factor`, high ones kept, those between blended.
double llama3_scaled(double frequency, const RopeConfig& rope) {
  constexpr double kPi = 3.14159265358979323846;
  const double wavelength = 2 * kPi / frequency;
  const auto original = static_cast<double>(rope.original_max_positions);
  if (wavelength < original / rope.high_freq_factor) return frequency;
  if (wavelength > original / rope.low_freq_factor) return frequency / rope.factor;
  const double smooth = (original / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - smooth) * frequency / rope.factor + smooth * frequency;
}

}  // namespace

std::vector<float> inverse_frequencies(const RopeConfig& rope, int64_t head_dim) {
  const int64_t half = head_dim / 2;
  std::vector<float> frequencies(half);
  for (int64_t i = 0; i < half; ++i) {
    double f = 1.0 / det_pow(rope.theta, static_cast<double>(2 * i) / static_cast<double>(head_dim));
    if (rope.scaling == RopeConfig::Scaling::linear) f /= rope.factor;
    if (rope.scaling == RopeConfig::Scaling::llama3) f = llama3_scaled(f, rope);
    if (!rope.frequency_factors.empty()) f /= static_cast<double>(rope.frequency_factors.at(i));
    frequencies[i] = static_cast<float>(f);
  }
  return frequencies;
}

std::vector<float> rope_table(const RopeConfig& rope, int64_t head_dim, int64_t n_positions) {
  check(head_dim % 2 == 0, "head_dim ", head_dim, " is odd");
  const std::vector<float> frequencies = inverse_frequencies(rope, head_dim);
  const int64_t half = head_dim / 2;
  std::vector<float> table(n_positions * head_dim);
  for (int64_t p = 0; p < n_positions; ++p) {
    for (int64_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(p) * frequencies[i];
      double sine, cosine;
      det_sin_cos(static_cast<double>(angle), &sine, &cosine);
      table[p * head_dim + i] = static_cast<float>(cosine);
      table[p * head_dim + half + i] = static_cast<float>(sine);
    }
  }
  return table;
}

}  // namespace lockstep
