#include "tests/ops/ops_testing.h"

namespace lockstep {
namespace {

using Rows = OpsTest;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // the sanitizer's allocator stops the program instead
#else
constexpr bool kSanitized = false;
#endif

TEST_P(Rows, UploadRoundsToNearestEven) {
  // 1 + 2^-8 lies halfway between two bf16 numbers, 1 and 1 + 2^-7; so does 1 + 3 * 2^-8.
  const std::vector<float> values = {1.0f, 1.0f + 0x1p-8f, 1.0f + 0x3p-8f, -2.5f, 0x1.fffffep+127f, 0x1p-149f};
  const float inf = std::numeric_limits<float>::infinity();
  const auto got = matrix(2, 3, values).values();
  if (dtype == DType::f32) {
    EXPECT_EQ(got, values);
  } else {
    EXPECT_EQ(got, (std::vector<float>{1.0f, 1.0f, 1.0f + 0x1p-6f, -2.5f, inf, 0.0f}));
  }
  const float nan = std::bit_cast<float>(0x7F800001u);
  EXPECT_TRUE(std::isnan(matrix(1, 1, {nan}).values()[0]));
  EXPECT_TRUE(std::isnan(matrix(1, 17, std::vector<float>(17, nan)).values()[3]));
}

TEST_P(Rows, AllocationsAreAlignedApartAndOutliveTheOps) {
  std::vector<Buffer> buffers;
  std::vector<size_t> sizes;
  for (const size_t bytes :
       {size_t{0}, size_t{1}, size_t{100}, size_t{40000}, size_t{5} << 20, size_t{15} << 20, size_t{17} << 20}) {
    for (int i = 0; i < 6; ++i) sizes.push_back(bytes);
  }
  for (const size_t bytes : sizes) {
    buffers.push_back(ops->allocate(bytes));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffers.back().data()) % 64, 0u);
    EXPECT_EQ(buffers.back().bytes(), bytes);
    if (bytes > 0) buffers.back().data()[0] = buffers.back().data()[bytes - 1] = std::byte(buffers.size());
  }
  ops.reset();
  for (size_t i = 0; i < buffers.size(); i += 2) buffers[i] = {};
  for (size_t i = 1; i < buffers.size(); i += 2) {
    if (sizes[i] == 0) continue;
    EXPECT_EQ(buffers[i].data()[0], std::byte(i + 1));
    EXPECT_EQ(buffers[i].data()[sizes[i] - 1], std::byte(i + 1));
  }
}

TEST_P(Rows, ImpossibleAllocationsAreErrors) {
  EXPECT_THROW(ops->allocate(~size_t{0}), Error);
  if (kSanitized) return;
  EXPECT_THROW(ops->allocate(size_t{1} << 60), Error);
}

TEST_P(Rows, NormOfEqualValuesIsTheWeight) {
  Matrix out = matrix(1, 4);
  ops->rms_norm(out.view, matrix(1, 4, {3, -3, 3, 3}).view, weights({1, 2, 4, 8}).view, 0.0f);
  const auto got = out.values();
  const std::vector<float> want = {1, -2, 4, 8};
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(got[i], want[i], 1e-6f * 8);
}

TEST_P(Rows, NormOfARowWhoseSquaresOverflowIsNoNumber) {
  Matrix out = matrix(2, 4);
  ops->rms_norm(out.view, matrix(2, 4, {0x1p70f, 1, 1, 1, 1, 1, 1, 1}).view, weights({1, 1, 1, 1}).view, 0.0f);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(std::isnan(out.values()[i])) << i;
  for (int i = 4; i < 8; ++i) EXPECT_EQ(out.values()[i], 1) << i;
}

TEST_P(Rows, NormMatchesTheReferenceOverOddSizes) {
  for (const int64_t n_cols : kOddSizes) {
    const int64_t n_rows = 3;
    const auto x = random_values(n_rows * n_cols, 4, dtype, 5.0f), w = random_values(n_cols, 5, dtype);
    const auto want = reference::rms_norm(as_double(x), as_double(w), n_rows, n_cols, 1e-5);
    reference::Vector tolerance;  // sum of squares n eps, square root, division, two products; in bf16 two roundings
    for (const double v : want) {
      const double eps = static_cast<double>(n_cols + 6) * kEps32 + (dtype == DType::bf16 ? 2.1 * half_ulp(dtype) : 0);
      tolerance.push_back(std::abs(v) * eps + 1e-30);
    }
    Matrix out = matrix(n_rows, n_cols);
    ops->rms_norm(out.view, matrix(n_rows, n_cols, x).view, weights(w).view, 1e-5f);
    ASSERT_TRUE(close_to(out.values(), want, tolerance)) << n_cols;
    ASSERT_TRUE(out.intact());
  }
}

TEST_P(Rows, NormRoundsTheQuotientFirstInBf16) {
  if (dtype == DType::f32) GTEST_SKIP() << "bf16 only";
  const int64_t n = 127;
  const auto x = random_values(n, 4, dtype, 5.0f), w = random_values(n, 5, dtype);
  Matrix quotient = matrix(1, n), out = matrix(1, n);
  ops->rms_norm(quotient.view, matrix(1, n, x).view, weights(std::vector<float>(n, 1.0f)).view, 1e-5f);
  ops->rms_norm(out.view, matrix(1, n, x).view, weights(w).view, 1e-5f);
  const auto q = quotient.values(), got = out.values();
  for (int64_t i = 0; i < n; ++i) ASSERT_EQ(got[i], rounded(q[i] * w[i], dtype)) << i;
}

TEST_P(Rows, AddThenNormIsBothInOne) {
  for (const int64_t n_cols : kOddSizes) {
    const auto a = random_values(2 * n_cols, 6, dtype), b = random_values(2 * n_cols, 7, dtype, 0.01f);
    const auto w = random_values(n_cols, 8, DType::f32);
    Matrix sum = matrix(2, n_cols, a), residual = matrix(2, n_cols, a), out = matrix(2, n_cols), want = matrix(2, n_cols);
    ops->add(sum.view, matrix(2, n_cols, b).view);
    const auto sums = sum.values();
    for (size_t i = 0; i < a.size(); ++i) ASSERT_EQ(sums[i], rounded(a[i] + b[i], dtype)) << i;
    ops->rms_norm(want.view, sum.view, weights(w).view, 1e-6f);
    ops->add_rms_norm(out.view, residual.view, matrix(2, n_cols, b).view, weights(w).view, 1e-6f);
    EXPECT_TRUE(same_bytes(residual.values(), sums));
    EXPECT_TRUE(same_bytes(out.values(), want.values()));
    EXPECT_TRUE(out.intact() && residual.intact());
  }
}

TEST_P(Rows, SiluOfZeroAndOfLargeGates) {
  Matrix out = matrix(1, 4);
  ops->silu_mul(out.view, matrix(1, 8, {0, 100, -100, 1, 5, 2, 2, 0}).view);  // gates, then ups
  EXPECT_EQ(out.values(), (std::vector<float>{0, 200, 0, 0}));
}

TEST_P(Rows, SiluMatchesTheReferenceOverOddSizes) {
  for (const int64_t n_cols : kOddSizes) {
    const auto x = random_values(3 * 2 * n_cols, 9, dtype, 20.0f);
    const auto want = reference::silu_mul(as_double(x), 3, n_cols);
    reference::Vector tolerance;  // exp 2, its argument, sum, division, product: a share of an ulp each
    for (const double v : want) tolerance.push_back(std::abs(v) * (8 * kEps32 + half_ulp(dtype)) + 1e-30);
    Matrix out = matrix(3, n_cols);
    ops->silu_mul(out.view, matrix(3, 2 * n_cols, x).view);
    ASSERT_TRUE(close_to(out.values(), want, tolerance)) << n_cols;
    ASSERT_TRUE(out.intact());
  }
}

// Two tokens and a reference to what was sampled into slot 3.
TEST_P(Rows, EmbedResolvesReferences) {
  const Matrix table = matrix(3, 2, {10, 11, 20, 21, 30, 31});
  StepBatch sampled = short_sequences(1, {1});
  sampled.samples = {{.row = 0, .slot = 3}};
  Matrix logits(*ops, DType::f32, 1, 3, {0, 1, 5});
  ops->sample(logits.view, ops->upload_batch(sampled));
  StepBatch batch = short_sequences(2, {3});
  batch.token_ids = {1, sampled_in(3), 0};
  Matrix out = matrix(3, 2);
  ops->embed(out.view, table.view, ops->upload_batch(batch));
  EXPECT_EQ(out.values(), (std::vector<float>{20, 21, 30, 31, 10, 11}));
  EXPECT_TRUE(out.intact());
  for (const TokenId bad : {3, sampled_in(4), sampled_in(8)}) {  // beyond the table, nothing sampled there, no such slot
    batch.token_ids[2] = bad;
    EXPECT_THROW(ops->embed(out.view, table.view, ops->upload_batch(batch)), Error) << bad;
  }
}

TEST_P(Rows, GatherTakesTheRowsNamed) {
  StepBatch batch = short_sequences(1, {2, 1});
  batch.samples = {{.row = 1}, {.row = 2}};
  batch.scores = {{.row = 0}, {.row = 1}};
  Matrix out = matrix(2, 2);
  const Matrix x = matrix(3, 2, {1, 2, 3, 4, 5, 6});
  const DeviceBatch device = ops->upload_batch(batch);
  ops->gather_rows(out.view, x.view, device.sample_rows);
  EXPECT_EQ(out.values(), (std::vector<float>{3, 4, 5, 6}));
  ops->gather_rows(out.view, x.view, device.score_rows);
  EXPECT_EQ(out.values(), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_TRUE(out.intact());
  for (const int32_t bad : {-1, 3}) {
    const int32_t rows[] = {0, bad};
    EXPECT_THROW(ops->gather_rows(out.view, x.view, rows), Error);
  }
}

TEST_P(Rows, RefusesBatchesThatContradictThemselves) {
  StepBatch good = short_sequences(1, {2});
  good.samples = {{.row = 1}};
  good.scores = {{.row = 0}};
  good.adjustments.resize(1);
  EXPECT_NO_THROW(ops->upload_batch(good));
  const auto refused = [&](auto change) {
    StepBatch bad = good;
    change(bad);
    EXPECT_THROW(ops->upload_batch(bad), Error);
  };
  refused([](StepBatch& b) { b.positions.pop_back(); });
  refused([](StepBatch& b) { b.positions = {0, 2}; });
  refused([](StepBatch& b) { b.positions = {1, 2}; });
  refused([](StepBatch& b) { b.q_offsets = {0, 1}; });
  refused([](StepBatch& b) { b.q_offsets = {}; });
  refused([](StepBatch& b) { b.kv_lengths = {17}; });
  refused([](StepBatch& b) { b.pages = {-1}; });
  refused([](StepBatch& b) { b.page_offsets = {0, 2}; });
  refused([](StepBatch& b) { b.samples[0].row = 2; });
  refused([](StepBatch& b) { b.samples[0].slot = 8; });
  refused([](StepBatch& b) { b.scores[0].row = -1; });
  refused([](StepBatch& b) { b.scores[0].row = 2; });
  refused([](StepBatch& b) { b.adjustments[0].slot = 8; });
}

TEST_P(Rows, RefusesShapesThatDoNotFit) {
  Matrix out = matrix(2, 3);
  EXPECT_THROW(ops->rms_norm(out.view, matrix(2, 4).view, weights({1, 1, 1}).view, 0), Error);
  EXPECT_THROW(ops->rms_norm(out.view, matrix(2, 3).view, weights({1, 1}).view, 0), Error);
  EXPECT_THROW(ops->add(out.view, matrix(1, 3).view), Error);
  EXPECT_THROW(ops->add_rms_norm(out.view, matrix(2, 3).view, matrix(2, 2).view, weights({1, 1, 1}).view, 0), Error);
  EXPECT_THROW(ops->silu_mul(out.view, matrix(2, 5).view), Error);
}

INSTANTIATE_TEST_SUITE_P(Cpu, Rows, ::testing::ValuesIn(ops_cases()), case_name);

TEST(MakeCpuOps, RefusesUnknownInstructionSets) {
  for (const char* name : {"avx", "neon", "AVX2"}) {
    try {
      make_cpu_ops({.n_threads = 1, .n_slots = 1, .instruction_set = name});
      FAIL() << name;
    } catch (const Error& e) {
      EXPECT_EQ(e.code, ExitCode::usage);
    }
  }
  EXPECT_THROW(make_cpu_ops({.n_threads = 0, .n_slots = 1, .instruction_set = ""}), Error);
}

}  // namespace
}  // namespace lockstep
