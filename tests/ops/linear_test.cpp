// Products with a weight, on each device.
#include <chrono>
#include <thread>

#include "tests/ops/devices.h"

namespace lockstep {
namespace {

using Linear = OpsTest;

TEST_P(Linear, OneHotRowsPickColumns) {
  // W[n][k] = 8 n + k + 1; a one-hot x picks a column of W; the bias adds 8 n.
  std::vector<float> w, b;
  for (int i = 0; i < 64; ++i) w.push_back(static_cast<float>(i + 1));
  for (int n = 0; n < 8; ++n) b.push_back(static_cast<float>(8 * n));
  LinearWeight weight = load(*ops, dtype, 8, 8, w);
  weight.bias = bias(b);
  const Matrix x = matrix(2, 8, {0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1});
  const Matrix out = matrix(2, 8);
  ops->linear(out.view, x.view, weight);
  EXPECT_EQ(out.values(), (std::vector<float>{2, 18, 34, 50, 66, 82, 98, 114, 8, 24, 40, 56, 72, 88, 104, 120}));
  EXPECT_TRUE(out.intact());
}

struct Product {
  int64_t n_rows, n_out, k;
};

// x W^T, with a bias if it isn't empty, out in type `out_type`, against the reference. Any order of the sum: k eps of the sum
// of absolute values; matrix units cut off where f32 addition rounds, which makes it 2 k eps. The result is rounded once; on a
// GPU the bias is added to a sum that was rounded to the type of the result, which makes it twice.
::testing::AssertionResult matches_the_reference(Ops& ops, const OpsCase& c, Product p, DType out_type,
                                                 const std::vector<float>& bias) {
  const auto x = random_values(p.n_rows * p.k, 1, c.dtype), w = random_values(p.n_out * p.k, 2, c.dtype);
  LinearWeight weight = load(ops, c.dtype, p.n_out, p.k, w);
  if (!bias.empty()) {
    weight.bias = ops.allocate(bias.size() * sizeof(float));
    ops.upload(weight.bias.matrix(DType::f32, 1, p.n_out), bias.data());
  }
  reference::Vector tolerance;
  const auto want = reference::linear(as_double(x), as_double(w), as_double(bias), p.n_rows, p.n_out, p.k, &tolerance);
  const double sums = c.device == Device::cpu ? 1 : 2;
  for (size_t i = 0; i < want.size(); ++i) {
    tolerance[i] = tolerance[i] * sums * kEps32 * static_cast<double>(p.k + 1) + half_ulp(out_type) * std::abs(want[i]);
    if (c.device != Device::cpu && !bias.empty())
      tolerance[i] += half_ulp(out_type) * std::abs(want[i] - bias[i % bias.size()]);
  }
  const Matrix out(ops, out_type, p.n_rows, p.n_out), in(ops, c.dtype, p.n_rows, p.k, x);
  ops.linear(out.view, in.view, weight);
  if (!out.intact()) return ::testing::AssertionFailure() << "wrote beyond its columns";
  return close_to(out.values(), want, tolerance);
}

TEST_P(Linear, MatchesTheReferenceOverOddSizes) {
  std::vector<Product> products;
  for (const int64_t n_rows : {1, 2, 3, 5, 12, 13, 33}) {
    for (const int64_t n_out : sizes()) {
      for (const int64_t k : sizes()) products.push_back({n_rows, n_out, k});
    }
  }
  if (on_gpu()) products.insert(products.end(), {{1, 64, 64}, {17, 960, 576}, {300, 72, 1536}, {5, 8, 8}});
  for (const Product& p : products) {
    ASSERT_TRUE(matches_the_reference(*ops, GetParam(), p, dtype, random_values(p.n_out, 3, DType::f32)))
        << p.n_rows << " x " << p.k << " -> " << p.n_out;
  }
}

TEST_P(Linear, WithoutABiasToo) { ASSERT_TRUE(matches_the_reference(*ops, GetParam(), {13, fit(33), fit(129)}, dtype, {})); }

TEST_P(Linear, LogitsOfBf16RowsAreNotRounded) {
  for (const Product p : {Product{2, fit(33), fit(129)}, Product{17, fit(129), fit(31)}}) {
    ASSERT_TRUE(matches_the_reference(*ops, GetParam(), p, DType::f32, {}));
    ASSERT_TRUE(matches_the_reference(*ops, GetParam(), p, DType::f32, random_values(p.n_out, 3, DType::f32)));
  }
}

// The order of one output's sum is stated: fma(x[k], w[k], acc) for k = 0 ... It is written here once more, and compared in
// bits.
TEST_P(Linear, IsOneChainOverK) {
  if (like_gpu()) GTEST_SKIP() << "on a GPU the order inside of a sum is the matrix unit's";
  const int64_t k = 1601, n_out = 35, n_rows = 7;  // three blocks of K
  const auto x = random_values(n_rows * k, 1, dtype), w = random_values(n_out * k, 2, dtype);
  std::vector<float> want;
  for (int64_t m = 0; m < n_rows; ++m) {
    for (int64_t n = 0; n < n_out; ++n) {
      float sum = 0;
      for (int64_t i = 0; i < k; ++i) sum = std::fma(x[m * k + i], w[n * k + i], sum);
      want.push_back(sum);
    }
  }
  Matrix out(*ops, DType::f32, n_rows, n_out);
  ops->linear(out.view, matrix(n_rows, k, x).view, load(*ops, dtype, n_out, k, w));
  EXPECT_TRUE(same_bytes(out.values(), want));
}

// As many rows as may be, other Ops, a rank's columns of a wider matrix: the same bytes.
TEST_P(Linear, BitsDoNotDependOnTheCompany) {
  const int64_t n_rows = 205, n_out = like_gpu() ? 960 : 101, k = like_gpu() ? 576 : 77;
  const auto x = random_values(n_rows * k, 1, dtype), w = random_values(n_out * k, 2, dtype);
  const Matrix in = matrix(n_rows, k, x), all = matrix(n_rows, n_out);
  ops->linear(all.view, in.view, load(*ops, dtype, n_out, k, w));
  const auto want = all.values();
  with_others([&](Ops& other, const std::string& which) {
    const Matrix out(other, dtype, n_rows, n_out), other_in(other, dtype, n_rows, k, x);
    other.linear(out.view, other_in.view, load(other, dtype, n_out, k, w));
    EXPECT_TRUE(same_bytes(out.values(), want)) << which;
  });
  const auto slabs = like_gpu() ? std::vector<Range>{{0, 640}, {640, 960}, {64, 128}, {8, 952}}
                                : std::vector<Range>{{0, 67}, {67, 101}, {40, 41}, {1, 100}};
  for (const Range columns : slabs) {
    const LinearWeight slab = load(*ops, dtype, n_out, k, w, columns);
    for (const Range rows : {Range{0, 1}, Range{3, 8}, Range{100, 113}, Range{190, 205}}) {
      const Matrix out = matrix(rows.size(), n_out, std::vector<float>(static_cast<size_t>(rows.size() * n_out), 5.0f));
      ops->linear(out.view.columns(columns), rows_of(in.view, rows), slab);
      const auto got = out.values();
      for (int64_t r = 0; r < rows.size(); ++r) {
        for (int64_t n = 0; n < n_out; ++n) {
          const bool inside = columns.begin <= n && n < columns.end;
          ASSERT_EQ(got[r * n_out + n], inside ? want[(rows.begin + r) * n_out + n] : 5.0f)
              << r << " " << n << " of columns " << columns.begin << " to " << columns.end;
        }
      }
    }
  }
}

TEST_P(Linear, ARowDoesNotSeeTheOthers) {
  std::vector<Product> products = {{205, 104, 80}};
  if (on_gpu()) products = {{1030, 960, 576}, {1030, 576, 1536}, {1030, 6144, 4096}, {1030, 4096, 14336}, {1030, 49152, 576}};
  for (const auto& [n_rows, n_out, k] : products) {
    const LinearWeight weight = load(*ops, dtype, n_out, k, random_values(n_out * k, 2, dtype, 0.05f));
    const Matrix x = matrix(n_rows, k, random_values(n_rows * k, 1, dtype));
    const DType type = n_out > 40000 ? DType::f32 : dtype;  // logits
    const Matrix all(*ops, type, n_rows, n_out);
    ops->linear(all.view, x.view, weight);
    const auto want = all.values();
    for (const int64_t m : {1, 2, 7, 16, 17, 33, 64, 100, 128, 129, 204, 255, 256, 257, 511, 700, 1024}) {
      if (m > n_rows) continue;
      const Matrix few(*ops, type, m, n_out);
      ops->linear(few.view, x.view.top(m), weight);
      ASSERT_TRUE(same_bytes(few.values(), {want.begin(), want.begin() + m * n_out}))
          << m << " rows of " << k << " -> " << n_out;
    }
  }
}

TEST_P(Linear, WhatIsTriedWhileLoadingChangesNoBit) {
  const int64_t n_rows = 300, n_out = 960, k = 576;
  const auto x = random_values(n_rows * k, 1, dtype), w = random_values(n_out * k, 2, dtype);
  for (const DType type : {dtype, DType::f32}) {
    const Matrix in = matrix(n_rows, k, x), expected(*ops, type, n_rows, n_out);
    ops->linear(expected.view, in.view, load(*ops, dtype, n_out, k, w));
    for (const int milliseconds : {0, 300}) {  // trials are cut off; or they have time
      const auto other = make_ops(GetParam(), 1);
      other->begin_loading({{0, k, dtype, n_rows}, {n_out, k, type, n_rows}, {n_out, k, DType::f32, 0}});
      std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
      const LinearWeight weight = load(*other, dtype, n_out, k, w);
      other->end_loading();
      const Matrix other_in(*other, dtype, n_rows, k, x);
      for (const int64_t m : {int64_t{1}, int64_t{17}, int64_t{130}, n_rows}) {
        const Matrix out(*other, type, m, n_out);
        other->linear(out.view, other_in.view.top(m), weight);
        const auto want = expected.values();
        EXPECT_TRUE(same_bytes(out.values(), {want.begin(), want.begin() + m * n_out}))
            << m << " rows, " << milliseconds << " ms";
      }
    }
  }
}

TEST_P(Linear, ReadsEachRowOnceInOrder) {
  const int64_t n_out = 304, k = 40000;  // several reads
  int64_t next = 0, n_reads = 0;
  const LinearWeight weight = ops->load_linear(n_out, k, dtype, [&](Range rows, float* out) {
    EXPECT_EQ(rows.begin, next);
    next = rows.end;
    ++n_reads;
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      for (int64_t i = 0; i < k; ++i) *out++ = i == r ? static_cast<float>(r % 200) : 0.0f;
    }
  });
  EXPECT_EQ(next, n_out);
  EXPECT_GT(n_reads, 1);
  Matrix out = matrix(1, n_out);
  ops->linear(out.view, matrix(1, k, std::vector<float>(k, 1.0f)).view, weight);
  const auto got = out.values();
  for (int64_t r = 0; r < n_out; ++r) ASSERT_EQ(got[r], static_cast<float>(r % 200)) << r;
}

TEST_P(Linear, RefusesShapesThatDoNotFit) {
  const LinearWeight weight = load(*ops, dtype, 8, 8, std::vector<float>(64, 1.0f));
  const Matrix out = matrix(2, 8);
  EXPECT_THROW(ops->linear(out.view, matrix(2, 16).view, weight), Error);
  EXPECT_THROW(ops->linear(out.view, matrix(3, 8).view, weight), Error);
  EXPECT_THROW(ops->linear(matrix(2, 16).view, matrix(2, 8).view, weight), Error);
  EXPECT_THROW(ops->load_linear(0, 8, dtype, [](Range, float*) {}), Error);
  EXPECT_THROW(ops->load_linear(int64_t{1} << 40, int64_t{1} << 40, dtype, [](Range, float*) {}), Error);
}

INSTANTIATE_TEST_SUITE_P(Cpu, Linear, cpu_cases(), case_name);
INSTANTIATE_TEST_SUITE_P(Apart, Linear, apart_cases(), case_name);
INSTANTIATE_TEST_SUITE_P(Cuda, Linear, cuda_cases(), case_name);

}  // namespace
}  // namespace lockstep
