// Memory, batches, and the ops that work row by row, on each device.
#include "tests/ops/devices.h"

namespace lockstep {
namespace {

using Rows = OpsTest;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // the sanitizer's allocator stops the program instead
#else
constexpr bool kSanitized = false;
#endif

// Beyond one piece of a thread on a GPU, two, four, and the most it takes.
constexpr int64_t kWide[] = {2056, 4104, 8200, 16384};

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
       {size_t{0}, size_t{4}, size_t{100}, size_t{40000}, size_t{5} << 20, size_t{15} << 20, size_t{17} << 20}) {
    for (int i = 0; i < 6; ++i) sizes.push_back(bytes);
  }
  const auto first = [&](size_t i) { return TensorView{buffers[i].data(), DType::f32, 1, 1, 1}; };
  const auto last = [&](size_t i) { return TensorView{buffers[i].data() + sizes[i] - 4, DType::f32, 1, 1, 1}; };
  for (const size_t bytes : sizes) {
    buffers.push_back(ops->allocate(bytes));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffers.back().data()) % 64, 0u);
    EXPECT_EQ(buffers.back().bytes(), bytes);
    if (bytes == 0) continue;
    const auto value = static_cast<float>(buffers.size());
    ops->upload(first(buffers.size() - 1), &value);
    ops->upload(last(buffers.size() - 1), &value);
  }
  ops = make_ops(GetParam(), 1);
  for (size_t i = 0; i < buffers.size(); i += 2) buffers[i] = {};
  for (size_t i = 1; i < buffers.size(); i += 2) {
    if (sizes[i] == 0) continue;
    for (const TensorView& view : {first(i), last(i)}) {
      float value = 0;
      ops->download(&value, view);
      EXPECT_EQ(value, static_cast<float>(i + 1));
    }
  }
}

TEST_P(Rows, ImpossibleAllocationsAreErrors) {
  EXPECT_THROW(ops->allocate(~size_t{0}), Error);
  if (kSanitized) return;
  EXPECT_THROW(ops->allocate(size_t{1} << 60), Error);
}

TEST_P(Rows, NormOfEqualValuesIsTheWeight) {
  Matrix out = matrix(1, 8);
  ops->rms_norm(out.view, matrix(1, 8, {3, -3, 3, 3, 3, 3, 3, 3}).view, weights({1, 2, 4, 8, 1, 1, 1, 1}).view, 0.0f);
  const auto got = out.values();
  const std::vector<float> want = {1, -2, 4, 8};
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(got[i], want[i], 1e-6f * 8);
}

TEST_P(Rows, NormOfARowWhoseSquaresOverflowIsNoNumber) {
  Matrix out = matrix(2, 8);
  std::vector<float> x(16, 1.0f);
  x[0] = 0x1p70f;
  ops->rms_norm(out.view, matrix(2, 8, x).view, weights(std::vector<float>(8, 1.0f)).view, 0.0f);
  const auto got = out.values();
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(std::isnan(got[i])) << i;
  for (int i = 8; i < 16; ++i) EXPECT_EQ(got[i], 1) << i;
}

TEST_P(Rows, NormMatchesTheReferenceOverOddSizes) {
  std::vector<int64_t> widths = sizes();
  widths.insert(widths.end(), std::begin(kWide), std::end(kWide));
  for (const int64_t n_cols : widths) {
    const int64_t n_rows = 3;
    const auto x = random_values(n_rows * n_cols, 4, dtype, 5.0f), w = random_values(n_cols, 5, dtype);
    const auto want = reference::rms_norm(as_double(x), as_double(w), n_rows, n_cols, 1e-5);
    // Sum of squares n eps in any order (the root halves it), mean, root, its inverse, two products; in bf16 two roundings.
    reference::Vector tolerance;
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
  const int64_t n = fit(127);
  const auto x = random_values(n, 4, dtype, 5.0f), w = random_values(n, 5, dtype);
  Matrix quotient = matrix(1, n), out = matrix(1, n);
  ops->rms_norm(quotient.view, matrix(1, n, x).view, weights(std::vector<float>(n, 1.0f)).view, 1e-5f);
  ops->rms_norm(out.view, matrix(1, n, x).view, weights(w).view, 1e-5f);
  const auto q = quotient.values(), got = out.values();
  for (int64_t i = 0; i < n; ++i) ASSERT_EQ(got[i], rounded(q[i] * w[i], dtype)) << i;
}

TEST_P(Rows, AddThenNormIsBothInOne) {
  std::vector<int64_t> widths = sizes();
  widths.insert(widths.end(), std::begin(kWide), std::end(kWide));
  for (const int64_t n_cols : widths) {
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
  const Matrix out = matrix(1, 4);
  ops->silu_mul(out.view, matrix(1, 8, {0, 100, -100, 1, 5, 2, 2, 0}).view);  // gates, then ups
  EXPECT_EQ(out.values(), (std::vector<float>{0, 200, 0, 0}));
}

TEST_P(Rows, SiluMatchesTheReferenceOverOddSizes) {
  for (const int64_t n_cols : {1, 2, 3, 31, 32, 33, 127, 128, 129, 2056}) {  // a GPU takes these too: eights are another path
    const auto x = random_values(3 * 2 * n_cols, 9, dtype, 20.0f);
    const auto want = reference::silu_mul(as_double(x), 3, n_cols);
    reference::Vector tolerance;  // exp within 2 ulp, its argument, sum, division, product
    for (const double v : want) tolerance.push_back(std::abs(v) * (8 * kEps32 + half_ulp(dtype)) + 1e-30);
    Matrix out = matrix(3, n_cols);
    ops->silu_mul(out.view, matrix(3, 2 * n_cols, x).view);
    ASSERT_TRUE(close_to(out.values(), want, tolerance)) << n_cols;
    ASSERT_TRUE(out.intact());
  }
}

// A row of a norm, a sum or a gated row among others and alone, and in any place.
TEST_P(Rows, BitsDoNotDependOnTheCompany) {
  const int64_t n_rows = 37, n_cols = fit(577);
  const auto x = random_values(n_rows * n_cols, 4, dtype, 3.0f), y = random_values(n_rows * 2 * n_cols, 5, dtype, 3.0f);
  const Matrix w = weights(random_values(n_cols, 6, dtype)), gates = matrix(n_rows, 2 * n_cols, y);
  const auto results = [&](Range rows) {  // of these rows only
    const Matrix residual = matrix(n_rows, n_cols, x), normed = matrix(n_rows, n_cols), sums = matrix(n_rows, n_cols);
    const Matrix act = matrix(n_rows, n_cols);
    ops->rms_norm(rows_of(normed.view, rows), rows_of(residual.view, rows), w.view, 1e-5f);
    ops->add_rms_norm(rows_of(sums.view, rows), rows_of(residual.view, rows), rows_of(gates.view.columns({0, n_cols}), rows),
                      w.view, 1e-5f);
    ops->silu_mul(rows_of(act.view, rows), rows_of(gates.view, rows));
    std::vector<std::vector<float>> out;
    for (const Matrix* m : {&residual, &normed, &sums, &act}) {
      const auto all = m->values();
      out.emplace_back(all.begin() + rows.begin * n_cols, all.begin() + rows.end * n_cols);
    }
    return out;
  };
  const auto want = results({0, n_rows});
  for (const Range rows : {Range{0, 1}, Range{17, 18}, Range{36, 37}, Range{5, 22}}) {
    const auto got = results(rows);
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_TRUE(same_bytes(got[i], {want[i].begin() + rows.begin * n_cols, want[i].begin() + rows.end * n_cols}))
          << "result " << i << " of row " << rows.begin;
    }
  }
}

// Two tokens and a reference to what was sampled into slot 3; a table's rows lie without gaps.
TEST_P(Rows, EmbedResolvesReferences) {
  for (const int64_t n_cols : {2, 16}) {
    std::vector<float> values;
    for (int64_t i = 0; i < 3 * n_cols; ++i) values.push_back(static_cast<float>(10 * (i / n_cols + 1) + i % n_cols));
    const Matrix table(*ops, dtype, 3, n_cols, values, 0);
    StepBatch sampled = short_sequences(n_cols, {1});
    sampled.samples = {{.row = 0, .slot = 3}};
    const Matrix logits(*ops, DType::f32, 1, 3, {0, 1, 5});
    ops->sample(logits.view, ops->upload_batch(sampled));
    StepBatch batch = short_sequences(n_cols + 1, {3});
    batch.token_ids = {1, sampled_in(3), 0};
    const Matrix out = matrix(3, n_cols);
    ops->embed(out.view, table.view, ops->upload_batch(batch));
    const auto got = out.values();
    for (int64_t i = 0; i < n_cols; ++i) {
      EXPECT_EQ(got[i], static_cast<float>(20 + i));
      EXPECT_EQ(got[n_cols + i], static_cast<float>(30 + i));
      EXPECT_EQ(got[2 * n_cols + i], static_cast<float>(10 + i));
    }
    EXPECT_TRUE(out.intact());
  }
}

TEST_P(Rows, EmbedRefusesTokensThatAreNone) {
  if (like_gpu()) GTEST_SKIP() << "on a GPU token ids are taken as they are";
  const Matrix table = matrix(3, 2, {10, 11, 20, 21, 30, 31}), out = matrix(1, 2);
  StepBatch batch = short_sequences(2, {1});
  for (const TokenId bad : {3, sampled_in(4), sampled_in(8)}) {  // beyond the table, nothing sampled there, no such slot
    batch.token_ids[0] = bad;
    EXPECT_THROW(ops->embed(out.view, table.view, ops->upload_batch(batch)), Error) << bad;
  }
}

TEST_P(Rows, GatherTakesTheRowsNamed) {
  StepBatch batch = short_sequences(1, {2, 1});
  batch.samples = {{.row = 1}, {.row = 2}};
  batch.scores = {{.row = 0}, {.row = 1}};
  const DeviceBatch device = ops->upload_batch(batch);
  for (const int64_t n_cols : {2, 16}) {
    std::vector<float> values;
    for (int64_t i = 0; i < 3 * n_cols; ++i) values.push_back(static_cast<float>(i));
    const auto rows = [&](int64_t begin) {
      return std::vector<float>(values.begin() + begin * n_cols, values.begin() + (begin + 2) * n_cols);
    };
    const Matrix out = matrix(2, n_cols), x = matrix(3, n_cols, values);
    ops->gather_rows(out.view, x.view, device.sample_rows);
    EXPECT_EQ(out.values(), rows(1));
    ops->gather_rows(out.view, x.view, device.score_rows);
    EXPECT_EQ(out.values(), rows(0));
    EXPECT_TRUE(out.intact());
  }
}

TEST_P(Rows, GatherRefusesRowsThatAreNone) {
  if (like_gpu()) GTEST_SKIP() << "on a GPU the names of rows are in its memory, and taken as they are";
  for (const int32_t bad : {-1, 3}) {
    const int32_t rows[] = {0, bad};
    EXPECT_THROW(ops->gather_rows(matrix(2, 2).view, matrix(3, 2).view, rows), Error);
  }
}

StepBatch consistent_batch() {
  StepBatch batch = short_sequences(1, {2});
  batch.samples = {{.row = 1}};
  batch.scores = {{.row = 0}};
  batch.adjustments.resize(1);
  return batch;
}

TEST_P(Rows, RefusesBatchesWhoseArraysDoNotFit) {
  EXPECT_NO_THROW(ops->upload_batch(consistent_batch()));
  const auto refused = [&](auto change) {
    StepBatch bad = consistent_batch();
    change(bad);
    EXPECT_THROW(ops->upload_batch(bad), Error);
  };
  refused([](StepBatch& b) { b.positions.pop_back(); });
  refused([](StepBatch& b) { b.q_offsets = {}; });
  refused([](StepBatch& b) { b.page_offsets = {0}; });
  refused([](StepBatch& b) { b.positions = {15, 16}, b.kv_lengths = {17}; });  // a token beyond its sequence's pages
  refused([](StepBatch& b) { b.samples[0].slot = 8; });
  refused([](StepBatch& b) { b.samples[0].slot = -1; });
}

TEST_P(Rows, RefusesBatchesThatContradictThemselves) {
  if (like_gpu()) GTEST_SKIP() << "a GPU takes the scheduler's word for what is inside of the arrays";
  const auto refused = [&](auto change) {
    StepBatch bad = consistent_batch();
    change(bad);
    EXPECT_THROW(ops->upload_batch(bad), Error);
  };
  refused([](StepBatch& b) { b.positions = {0, 2}; });
  refused([](StepBatch& b) { b.positions = {1, 2}; });
  refused([](StepBatch& b) { b.q_offsets = {0, 1}; });
  refused([](StepBatch& b) { b.kv_lengths = {17}; });
  refused([](StepBatch& b) { b.pages = {-1}; });
  refused([](StepBatch& b) { b.page_offsets = {0, 2}; });
  refused([](StepBatch& b) { b.samples[0].row = 2; });
  refused([](StepBatch& b) { b.scores[0].row = -1; });
  refused([](StepBatch& b) { b.scores[0].row = 2; });
  refused([](StepBatch& b) { b.adjustments[0].slot = 8; });
}

TEST_P(Rows, RefusesShapesThatDoNotFit) {
  const Matrix out = matrix(2, 8);
  const Matrix ones = weights(std::vector<float>(8, 1.0f)), few = weights(std::vector<float>(7, 1.0f));
  EXPECT_THROW(ops->rms_norm(out.view, matrix(2, 16).view, ones.view, 0), Error);
  EXPECT_THROW(ops->rms_norm(out.view, matrix(2, 8).view, few.view, 0), Error);
  EXPECT_THROW(ops->add(out.view, matrix(1, 8).view), Error);
  EXPECT_THROW(ops->add_rms_norm(out.view, matrix(2, 8).view, matrix(2, 16).view, ones.view, 0), Error);
  EXPECT_THROW(ops->silu_mul(out.view, matrix(2, 17).view), Error);
}

INSTANTIATE_TEST_SUITE_P(Cpu, Rows, cpu_cases(), case_name);
INSTANTIATE_TEST_SUITE_P(Apart, Rows, apart_cases(), case_name);
INSTANTIATE_TEST_SUITE_P(Cuda, Rows, cuda_cases(), case_name);

}  // namespace
}  // namespace lockstep
