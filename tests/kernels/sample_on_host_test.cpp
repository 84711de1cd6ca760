// The sampling kernels, run thread by thread on the host (on_host.h), against their rules (kernels/sample.h) written out over a
// sorted row.
#include <gtest/gtest.h>

#include "tests/kernels/on_host.h"  // before the kernels

#include <numeric>
#include <random>

#include "kernels/sample_kernels.cuh"

namespace lockstep::kernels {

namespace {

using Row = std::vector<float>;

std::vector<int> in_order(const Row& x) {
  std::vector<int> order(x.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    return x[static_cast<size_t>(a)] != x[static_cast<size_t>(b)] ? x[static_cast<size_t>(a)] > x[static_cast<size_t>(b)]
                                                                  : a < b;
  });
  return order;
}

int expected(const Row& x, const DrawRule& rule) {
  std::vector<int> order = in_order(x);
  const float max = x[static_cast<size_t>(order[0])];
  if (rule.temperature == 0) return order[0];
  const auto y = [&](int i) { return (x[static_cast<size_t>(i)] - max) / rule.temperature; };
  const auto mass = [&](int i) { return static_cast<unsigned long long>(static_cast<double>(std::exp(y(i))) * 0x1p42); };
  if (rule.top_k > 0 && static_cast<size_t>(rule.top_k) < order.size()) order.resize(static_cast<size_t>(rule.top_k));
  if (rule.top_p < 1) {
    unsigned long long all = 0, sum = 0;
    for (const int i : order) all += mass(i);
    const auto needed = static_cast<unsigned long long>(std::ceil(static_cast<double>(rule.top_p) * static_cast<double>(all)));
    size_t n = 0;
    while (n == 0 || sum < needed) sum += mass(order[n++]);
    order.resize(n);
  }
  int best = -1;
  float best_value = 0;
  std::sort(order.begin(), order.end());
  for (const int i : order) {
    if (std::exp(y(i)) < rule.min_p || x[static_cast<size_t>(i)] == -kInfinity) continue;
    const uint4 words = philox(rule.key, {static_cast<uint32_t>(rule.position), static_cast<uint32_t>(i) / 4, 0x5A4Du, 0u});
    const uint32_t word = i % 4 == 0 ? words.x : i % 4 == 1 ? words.y : i % 4 == 2 ? words.z : words.w;
    const float value = y(i) + static_cast<float>(-std::log(-std::log((static_cast<double>(word) + 0.5) * 0x1p-32)));
    if (best < 0 || value > best_value) best = i, best_value = value;
  }
  return best;
}

struct Drawn {
  DrawnRow row;
  std::vector<TopEntry> top;
  int slot;
};

Drawn draw_on_host(const Row& x, DrawRule rule) {
  rule.adjusted = -1;
  Drawn drawn{.row = {}, .top = std::vector<TopEntry>(kMaxTop), .slot = -1};
  on_host::launch(dim3(1), kThreads, [&] {
    sample_rows(x.data(), static_cast<int64_t>(x.size()), nullptr, 0, static_cast<int>(x.size()), &rule, &drawn.slot, nullptr,
                &drawn.row, drawn.top.data());
  });
  return drawn;
}

// Random; heaps of equal logits, more than a list holds; all equal; tails that no mass reaches; few tokens.
std::vector<Row> rows() {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<Row> rows;
  Row x(5003);
  for (float& v : x) v = 2 * normal(random);
  rows.push_back(x);
  for (float& v : x) v = std::round(v / 3);
  rows.push_back(x);
  rows.emplace_back(3001, -1.5f);
  for (size_t i = 0; i < x.size(); ++i) x[i] = i % 7 == 0 ? -kInfinity : -200.0f * static_cast<float>(i % 13);
  rows.push_back(x);
  rows.push_back({0.5f, -0.0f, 0.0f, 0.25f, -kInfinity});
  rows.push_back({3});
  return rows;
}

TEST(SampleOnHost, DrawsByItsRules) {
  std::mt19937 random(5);
  const auto all = rows();
  for (size_t r = 0; r < all.size(); ++r)
    for (const DrawRule& base :
         {DrawRule{.temperature = 0, .top_p = 1}, DrawRule{.temperature = 1, .top_p = 1},
          DrawRule{.temperature = 0.7f, .top_p = 0.9f}, DrawRule{.top_k = 40, .temperature = 1, .top_p = 1},
          DrawRule{.top_k = 1500, .temperature = 2, .top_p = 0.5f}, DrawRule{.temperature = 1, .top_p = 1, .min_p = 0.2f},
          DrawRule{.top_k = 3, .temperature = 1.5f, .top_p = 0.99f}, DrawRule{.temperature = 0.01f, .top_p = 0.1f},
          DrawRule{.temperature = 30, .top_p = 0.999f}})
      for (int repeat = 0; repeat < 4; ++repeat) {
        DrawRule rule = base;
        rule.key = random(), rule.position = repeat, rule.slot = 0, rule.n_top = -1;
        const Drawn drawn = draw_on_host(all[r], rule);
        EXPECT_TRUE(drawn.row.finite);
        EXPECT_EQ(drawn.row.token, expected(all[r], rule))
            << "row " << r << ", temperature " << rule.temperature << ", top_k " << rule.top_k << ", top_p " << rule.top_p
            << ", min_p " << rule.min_p;
        EXPECT_EQ(drawn.slot, drawn.row.token);
      }
}

// The border itself, which a single draw seldom hits: the last token kept and the first one not.
TEST(SampleOnHost, TheBorderIsExact) {
  const auto all = rows();
  for (size_t r = 0; r + 2 < all.size(); ++r) {
    const Row& x = all[r];
    const auto order = in_order(x);
    const float max = x[static_cast<size_t>(order[0])];
    const auto mass = [&](int i) {
      return static_cast<unsigned long long>(static_cast<double>(std::exp(x[static_cast<size_t>(i)] - max)) * 0x1p42);
    };
    static Shared shared;
    const auto cut_of = [&](uint32_t want, unsigned long long want_mass, unsigned long long* found) {
      Cut cut;
      on_host::launch(dim3(1), kThreads, [&] {
        const Cut mine = find_cut(shared, {x.data(), max, 1}, static_cast<int>(x.size()), want, want_mass, true, found);
        if (threadIdx.x == 77) cut = mine;
      });
      return cut;
    };
    unsigned long long sum = 0;
    for (size_t n = 1; n <= x.size(); ++n) {
      const int last = order[n - 1];
      sum += mass(last);
      if (n % 397 != 1 && n != x.size()) continue;
      for (const bool by_mass : {false, true}) {
        if (by_mass && mass(last) == 0) continue;
        unsigned long long found = 0;
        const Cut cut = by_mass ? cut_of(0, sum, &found) : cut_of(static_cast<uint32_t>(n), 0, &found);
        EXPECT_EQ(found, sum) << "row " << r << ", " << n << " tokens";
        EXPECT_TRUE(cut.keeps(order_key(x[static_cast<size_t>(last)]), last)) << "row " << r << ", " << n << " tokens";
        if (n == x.size()) continue;

        EXPECT_FALSE(cut.keeps(order_key(x[static_cast<size_t>(order[n])]), order[n])) << "row " << r << ", " << n << " tokens";
      }
    }
  }
}

TEST(SampleOnHost, TheMostLikelyTokensAndTheirLogProbabilities) {
  for (const Row& x : rows()) {
    const Drawn drawn = draw_on_host(x, {.n_top = 20, .temperature = 0, .top_p = 1});
    const auto order = in_order(x);
    double sum = 0;
    for (const float v : x) sum += std::exp(static_cast<double>(v) - static_cast<double>(x[static_cast<size_t>(order[0])]));
    std::vector<int> tokens;
    for (int i = 0; i < drawn.row.n_top; ++i) tokens.push_back(drawn.top[static_cast<size_t>(i)].token);
    std::sort(tokens.begin(), tokens.end());
    std::vector<int> wanted;
    for (const int i : order)
      if (wanted.size() < 20 && x[static_cast<size_t>(i)] > -kInfinity) wanted.push_back(i);
    std::sort(wanted.begin(), wanted.end());
    EXPECT_EQ(tokens, wanted);
    EXPECT_NEAR(drawn.row.logprob, -std::log(sum), 1e-5);
  }
}

TEST(SampleOnHost, WhatIsNotFiniteIsNotDrawn) {
  for (const float bad : {std::nanf(""), kInfinity}) {
    Row x(900, 1.0f);
    x[613] = bad;
    EXPECT_FALSE(draw_on_host(x, {.temperature = 1, .top_p = 0.9f}).row.finite);
  }
  EXPECT_FALSE(draw_on_host(Row(5, -kInfinity), {.temperature = 0, .top_p = 1}).row.finite);
}

}  // namespace

}  // namespace lockstep::kernels
