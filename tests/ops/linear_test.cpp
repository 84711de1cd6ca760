#include "tests/ops/ops_testing.h"

namespace lockstep {
namespace {

using Linear = OpsTest;

TEST_P(Linear, OneHotRowsPickColumns) {
  // W is 3 x 4; a one-hot x picks a column of W; the bias adds 100, 200, 300.
  const std::vector<float> w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  LinearWeight weight = load(*ops, dtype, 3, 4, w);
  weight.bias = ops->allocate(3 * sizeof(float));
  const float bias[] = {16, 32, 64};
  std::memcpy(weight.bias.data(), bias, sizeof bias);
  const Matrix x = matrix(2, 4, {0, 1, 0, 0, 0, 0, 0, 1});
  Matrix out = matrix(2, 3);
  ops->linear(out.view, x.view, weight);
  EXPECT_EQ(out.values(), (std::vector<float>{18, 38, 74, 20, 40, 76}));
  EXPECT_TRUE(out.intact());
}

TEST_P(Linear, MatchesTheReferenceOverOddSizes) {
  for (const int64_t n_rows : {1, 2, 3, 5, 12, 13, 33}) {
    for (const int64_t n_out : kOddSizes) {
      for (const int64_t k : kOddSizes) {
        const auto x = random_values(n_rows * k, 1, dtype), w = random_values(n_out * k, 2, dtype);
        const auto bias = random_values(n_out, 3, DType::f32);
        LinearWeight weight = load(*ops, dtype, n_out, k, w);
        weight.bias = ops->allocate(static_cast<size_t>(n_out) * 4);
        std::memcpy(weight.bias.data(), bias.data(), static_cast<size_t>(n_out) * 4);
        reference::Vector tolerance;
        const auto want = reference::linear(as_double(x), as_double(w), as_double(bias), n_rows, n_out, k, &tolerance);
        for (size_t i = 0; i < want.size(); ++i) {
          tolerance[i] = tolerance[i] * kEps32 * static_cast<double>(k + 1) + half_ulp(dtype) * std::abs(want[i]);
        }
        Matrix out = matrix(n_rows, n_out);
        ops->linear(out.view, matrix(n_rows, k, x).view, weight);
        ASSERT_TRUE(close_to(out.values(), want, tolerance)) << n_rows << " x " << k << " -> " << n_out;
        ASSERT_TRUE(out.intact());
      }
    }
  }
}

TEST_P(Linear, LogitsOfBf16RowsAreNotRounded) {
  const int64_t k = 129, n_out = 33;
  const auto x = random_values(2 * k, 1, dtype), w = random_values(n_out * k, 2, dtype);
  reference::Vector tolerance;
  const auto want = reference::linear(as_double(x), as_double(w), {}, 2, n_out, k, &tolerance);
  for (double& t : tolerance) t *= kEps32 * static_cast<double>(k);
  Matrix out(*ops, DType::f32, 2, n_out);
  ops->linear(out.view, matrix(2, k, x).view, load(*ops, dtype, n_out, k, w));
  EXPECT_TRUE(close_to(out.values(), want, tolerance));
}

// The order of one output's sum is stated: fma(x[k], w[k], acc) for k = 0 ... It is written here once more, and compared in
// bits.
TEST_P(Linear, IsOneChainOverK) {
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

TEST_P(Linear, BitsDoNotDependOnTheCompany) {
  const int64_t n_rows = 205, n_out = 101, k = 77;
  const auto x = random_values(n_rows * k, 1, dtype), w = random_values(n_out * k, 2, dtype);
  Matrix all = matrix(n_rows, n_out);
  ops->linear(all.view, matrix(n_rows, k, x).view, load(*ops, dtype, n_out, k, w));
  const auto want = all.values();
  for (const auto& name : instruction_sets()) {
    for (const int n_threads : {1, 2, 3}) {
      const auto other = make_cpu_ops({.n_threads = n_threads, .n_slots = 1, .instruction_set = name});
      Matrix out(*other, dtype, n_rows, n_out);
      other->linear(out.view, Matrix(*other, dtype, n_rows, k, x).view, load(*other, dtype, n_out, k, w));
      EXPECT_TRUE(same_bytes(out.values(), want)) << name << ", " << n_threads << " threads";
    }
  }
  for (const Range rows :
       {Range{0, 1}, Range{3, 8}, Range{100, 113}, Range{190, 205}}) {  // a rank's column slab of a wider matrix
    for (const Range columns : {Range{0, 67}, Range{67, 101}, Range{40, 41}, Range{1, 100}}) {
      const std::vector<float> part(x.begin() + rows.begin * k, x.begin() + rows.end * k);
      Matrix out = matrix(rows.size(), n_out, std::vector<float>(static_cast<size_t>(rows.size() * n_out), 5.0f));
      ops->linear(out.view.columns(columns), matrix(rows.size(), k, part).view, load(*ops, dtype, n_out, k, w, columns));
      const auto got = out.values();
      for (int64_t r = 0; r < rows.size(); ++r) {
        for (int64_t n = 0; n < n_out; ++n) {
          const bool inside = columns.begin <= n && n < columns.end;
          ASSERT_EQ(got[r * n_out + n], inside ? want[(rows.begin + r) * n_out + n] : 5.0f) << r << " " << n;
        }
      }
    }
  }
}

TEST_P(Linear, ReadsEachRowOnceInOrder) {
  const int64_t n_out = 300, k = 40000;  // several reads
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
  const LinearWeight weight = load(*ops, dtype, 3, 4, std::vector<float>(12, 1.0f));
  const Matrix x = matrix(2, 5);
  Matrix out = matrix(2, 3);
  EXPECT_THROW(ops->linear(out.view, x.view, weight), Error);
  EXPECT_THROW(ops->linear(out.view, matrix(3, 4).view, weight), Error);
  EXPECT_THROW(ops->linear(matrix(2, 4).view, matrix(2, 4).view, weight), Error);
  EXPECT_THROW(ops->load_linear(0, 4, dtype, [](Range, float*) {}), Error);
  EXPECT_THROW(ops->load_linear(int64_t{1} << 40, int64_t{1} << 40, dtype, [](Range, float*) {}), Error);
}

INSTANTIATE_TEST_SUITE_P(Cpu, Linear, ::testing::ValuesIn(ops_cases()), case_name);

}  // namespace
}  // namespace lockstep
