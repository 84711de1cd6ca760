// Parts of the kernels whose definition is worth pinning down by itself: the exponential and the draw.
#include "ops/cpu/kernels.h"

#include <algorithm>

#include "tests/ops/devices.h"

namespace lockstep {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

class Kernels : public ::testing::TestWithParam<std::string> {
 protected:
  const CpuKernels& kernels = cpu_kernels(GetParam().c_str());

  std::vector<float> exp(const std::vector<float>& x) {
    std::vector<float> y(x.size()), p(x.size());
    kernels.soften(y.data(), p.data(), x.data(), static_cast<int64_t>(x.size()), 0.0f, 1.0f);
    EXPECT_TRUE(same_bytes(x, y));
    return p;
  }
};

TEST_P(Kernels, ExponentialAtItsEdges) {
  const auto p = exp({0, -87, std::nextafter(-87.0f, -kInf), -1000, -kInf, 88, std::nextafter(88.0f, kInf), 1e30f});
  EXPECT_EQ(p[0], 1);
  EXPECT_GT(p[1], std::numeric_limits<float>::min());
  for (const int i : {2, 3, 4}) EXPECT_EQ(p[i], 0) << i;
  EXPECT_LT(p[5], kInf);
  for (const int i : {6, 7}) EXPECT_EQ(p[i], kInf) << i;
  EXPECT_TRUE(std::isnan(exp({std::nanf("")})[0]));
}

TEST_P(Kernels, ExponentialKeepsItsBound) {
  std::vector<float> x = random_values(100001, 6, DType::f32, 87.0f);
  for (size_t i = 0; i < x.size(); i += 3) x[i] *= 0.01f;
  const auto p = exp(x);
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = std::exp(static_cast<double>(x[i]));
    const double ulp = std::ldexp(1.0, std::ilogb(want) - 23);
    worst = std::max(worst, std::abs(p[i] - want) / ulp);
  }
  EXPECT_LE(worst, 1.1);  // 1.008 was measured
}

TEST_P(Kernels, SumsAreThoseOfTheirChunks) {
  for (const int64_t n : {1, 15, 17, 255, 256, 257, 1000}) {
    const auto x = random_values(n, 12, DType::f32, 8.0f);
    std::vector<float> y(x.size()), p(x.size());
    double want = 0;
    for (const float v : x) want += std::exp(static_cast<double>(v) - 8);
    const double sum = kernels.sum_exp(x.data(), n, 8.0f);
    EXPECT_NEAR(sum, want, want * 20 * kEps32) << n;
    EXPECT_EQ(sum, kernels.soften(y.data(), p.data(), x.data(), n, 8.0f, 1.0f)) << n;
  }
}

// The draw in its own words: token t has word t mod 4 of philox4x32(key; position, t / 4, 0x5A4D, 0), u = (word + 1/2) / 2^32,
// and the largest y - log(-log u) wins. Where the first two lie closer than rounding the test looks away.
TEST_P(Kernels, DrawFollowsItsDefinition) {
  const int64_t vocab = 150;
  const auto y = random_values(vocab, 19, DType::f32, 2.0f);
  std::vector<int32_t> some;  // in no order
  for (int32_t i = 0; i < 40; ++i) some.push_back(i * 77 % 150);
  int n_checked = 0;
  for (uint64_t key = 0; key < 300; ++key) {
    const auto position = static_cast<uint32_t>(key * 31 % 17);
    const auto value = [&](int32_t t) {
      const uint32_t word = philox4x32(key << 31, {position, static_cast<uint32_t>(t / 4), 0x5A4D, 0})[t % 4];
      return static_cast<double>(y[t]) - std::log(-std::log((word + 0.5) * 0x1p-32));
    };
    for (const bool all : {true, false}) {
      std::vector<std::pair<double, int32_t>> order;
      std::vector<float> some_y;
      for (int32_t t = 0; t < vocab; ++t) {
        if (all || std::find(some.begin(), some.end(), t) != some.end()) order.emplace_back(-value(t), t);
      }
      for (const int32_t t : some) some_y.push_back(y[t]);
      std::sort(order.begin(), order.end());
      if (order[1].first - order[0].first < 1e-4) continue;
      const int32_t got = all ? kernels.gumbel_argmax(y.data(), nullptr, vocab, key << 31, position)
                              : kernels.gumbel_argmax(some_y.data(), some.data(), 40, key << 31, position);
      ASSERT_EQ(got, order[0].second) << key << (all ? " all" : " some");
      ++n_checked;
    }
  }
  EXPECT_GT(n_checked, 500);
}

INSTANTIATE_TEST_SUITE_P(Cpu, Kernels, ::testing::ValuesIn(instruction_sets()), [](const auto& test) { return test.param; });

}  // namespace
}  // namespace lockstep
