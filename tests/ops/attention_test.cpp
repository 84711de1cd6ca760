// Rotation, the KV pages and attention, on each device.
#include <algorithm>

#include "tests/ops/attention_layer.h"
#include "tests/ops/devices.h"

namespace lockstep {
namespace {

class Attention : public OpsTest {
 protected:
  int64_t head_dim(int64_t n) const { return !like_gpu() ? n : n <= 16 ? 16 : n <= 32 ? 32 : n <= 64 ? 64 : 128; }
};

// Keys are one-hot by position, a query of 200 at place j picks value row j (the other weights are e^-200: 0 in f32).
TEST_P(Attention, AOneHotQueryPicksOneValueRow) {
  const HeadShape heads{1, 1, 16};
  AttentionLayer layer(heads, {4}, dtype);
  layer.scale = 1;
  for (size_t i = 0; i < layer.rope.size(); ++i) layer.rope[i] = i % 16 < 8 ? 1.0f : 0.0f;  // no rotation
  layer.qkv.assign(4 * 48, 0.0f);
  const int picks[] = {0, 0, 1, 3};
  std::vector<float> want;
  for (int row = 0; row < 4; ++row) {
    float *q = layer.qkv.data() + row * 48, *k = q + 16, *v = k + 16;
    q[picks[row]] = 200, k[row] = 1;
    for (int i = 0; i < 16; ++i) {
      v[i] = static_cast<float>(16 * row + i + 1);
      want.push_back(static_cast<float>(16 * picks[row] + i + 1));
    }
  }
  EXPECT_EQ(layer.run(*ops, dtype, layer.one_pass(), 1), want);
}

// ---- against the reference ----

struct Head {  // as it enters the scores, and how far rounding may move each element
  reference::Vector x, error;
};

// Of a row of qkv, columns [column, column + d): normalised if `norm` isn't empty, rotated. Without norms the rotation is
// rounded once, as the reference is here. With them the quotient is rounded before its weight, and ops/cpu rounds the product
// too.
Head rotated(const AttentionLayer& layer, int64_t row, int64_t column, int64_t position, const std::vector<float>& norm,
             DType dtype) {
  const int64_t d = layer.heads.head_dim;
  const float* from = layer.qkv.data() + row * layer.heads.qkv_cols() + column;
  const float* r = layer.rope.data() + position * d;
  reference::Vector x(from, from + d);
  if (!norm.empty()) {
    x = reference::rms_norm(x, reference::Vector(d, 1.0), 1, d, 1e-6);
    for (int64_t i = 0; i < d; ++i) x[i] = static_cast<double>(rounded(static_cast<float>(x[i]), dtype)) * norm[i];
  }
  Head head{reference::rotate(x, {r, r + d / 2}, {r + d / 2, r + d}), reference::Vector(d, 0.0)};
  for (double& v : head.x) v = rounded(static_cast<float>(v), dtype);
  if (norm.empty()) return head;
  for (int64_t i = 0; i < d; ++i) {
    const int64_t pair = (i + d / 2) % d, at = i % (d / 2);
    head.error[i] = half_ulp(dtype) * (std::abs(x[i] * r[at]) + std::abs(x[pair] * r[at + d / 2]));
  }
  return head;
}

struct Expected {
  reference::Vector want, tolerance;
};

Expected attend_all(const AttentionLayer& layer, DType dtype, bool bf16_weights) {
  const HeadShape heads = layer.heads;
  const int64_t d = heads.head_dim, cols = heads.n_heads * d, group = heads.n_heads / heads.n_kv_heads;
  const auto n = static_cast<size_t>(layer.first_row(layer.lengths.size()) * cols);
  Expected out{reference::Vector(n), reference::Vector(n)};
  for (size_t s = 0; s < layer.lengths.size(); ++s) {
    const int64_t row0 = layer.first_row(s);
    for (int64_t h = 0; h < heads.n_heads; ++h) {
      reference::Vector keys, key_errors, values, sum_abs;
      for (int64_t j = 0; j < layer.lengths[s]; ++j) {
        const Head k = rotated(layer, row0 + j, (heads.n_heads + h / group) * d, j, layer.k_norm, dtype);
        keys.insert(keys.end(), k.x.begin(), k.x.end());
        key_errors.insert(key_errors.end(), k.error.begin(), k.error.end());
        const float* v = layer.qkv.data() + (row0 + j) * heads.qkv_cols() + (heads.n_heads + heads.n_kv_heads + h / group) * d;
        values.insert(values.end(), v, v + d);
      }
      for (int64_t i = 0; i < layer.lengths[s]; ++i) {
        const Head q = rotated(layer, row0 + i, h * d, i, layer.q_norm, dtype);
        const int64_t first = layer.window == 0 ? 0 : std::max<int64_t>(0, i - layer.window + 1);
        const auto got = reference::attend(q.x, keys, values, first, i, layer.scale, &sum_abs);
        // Scores: |q| |k| <= d * 8 within eps d each, plus rotation's own error; they enter as a relative error of p. In
        // bf16 a rotation may land on the other side of a rounding border: 2^-8 of a factor now and then.
        double score_abs = 0, norm_error = 0;
        for (int64_t e = 0; e < d; ++e) score_abs += std::abs(q.x[e]) * 2.0 * layer.scale;
        for (int64_t j = first; j <= i && !layer.q_norm.empty(); ++j) {
          double off = 0;
          for (int64_t e = 0; e < d; ++e)
            off += std::abs(q.x[e]) * key_errors[j * d + e] + std::abs(keys[j * d + e]) * q.error[e];
          norm_error = std::max(norm_error, off * layer.scale);
        }
        const double p_error = score_abs * (static_cast<double>(d) + 8) * kEps32 * 2 + norm_error +
                               (dtype == DType::bf16 ? 4 * 2.0 * 0x1p-8 * layer.scale : 0);
        // On a GPU each weight p is rounded to bf16 for its product with the value, their sum is not: half an ulp of each
        // term. The exponential and the factors of merging are within 2^-21 of theirs, a handful a row.
        const double weights = bf16_weights ? half_ulp(DType::bf16) + 0x1p-17 : 0;
        for (int64_t e = 0; e < d; ++e) {
          const int64_t at = (row0 + i) * cols + h * d + e;
          out.want[at] = got[e];
          out.tolerance[at] = sum_abs[e] * (2 * p_error + static_cast<double>(i + 8) * 2 * kEps32 + weights) +
                              std::abs(got[e]) * half_ulp(dtype);
        }
      }
    }
  }
  return out;
}

TEST_P(Attention, MatchesTheReference) {
  std::vector<HeadShape> shapes = {{3, 1, 16}, {4, 2, 10}, {9, 3, 64}, {7, 1, 34}};
  if (like_gpu()) shapes = {{3, 1, 16}, {4, 2, 32}, {7, 1, 64}, {2, 1, 128}, {24, 1, 16}};  // and a group beyond its tile of 16
  for (const HeadShape heads : shapes) {
    for (const int32_t window : {0, 1, 5, 17, 40}) {
      AttentionLayer layer(heads, {33, 1, 31, 129, 2, 32}, dtype);
      layer.window = window;
      const Expected expected = attend_all(layer, dtype, like_gpu());
      ASSERT_TRUE(close_to(layer.run(*ops, dtype, layer.chunks({7, 1, 16, 33}), 5), expected.want, expected.tolerance))
          << heads.n_heads << "/" << heads.n_kv_heads << " x " << heads.head_dim << " window " << window;
    }
  }
}

TEST_P(Attention, MatchesTheReferenceWithHeadNorms) {
  for (const HeadShape heads : {HeadShape{4, 2, head_dim(10)}, HeadShape{2, 1, 64}}) {
    AttentionLayer layer(heads, {33, 17}, dtype);
    layer.with_norms();
    const Expected expected = attend_all(layer, dtype, like_gpu());
    ASSERT_TRUE(close_to(layer.run(*ops, dtype, layer.chunks({7, 1, 16}), 5), expected.want, expected.tolerance));
  }
}

// Several rounds of chunks in decode, several tiles of queries in prefill.
TEST_P(Attention, LongSequencesMatchTheReference) {
  std::vector<AttentionLayer> layers = {{{2, 1, 16}, {300, 40}, dtype}};
  if (on_gpu()) {
    layers = {{{8, 2, 128}, {600, 31, 1100}, dtype}, {{8, 8, 32}, {400, 64}, dtype}, {{24, 1, 64}, {530}, dtype}};
    layers[1].window = 100;
  }
  for (AttentionLayer& layer : layers) {
    layer.scale = 1 / std::sqrt(static_cast<float>(layer.heads.head_dim));
    const Expected expected = attend_all(layer, dtype, like_gpu());
    for (const auto& steps : {layer.one_pass(), layer.chunks({1, 130})})
      ASSERT_TRUE(close_to(layer.run(*ops, dtype, steps, 5), expected.want, expected.tolerance));
  }
}

// The q part of qkv after the call, with norms and without. In f32 until the end; a norm's quotient is rounded first, and
// ops/cpu rounds its product too: each half an ulp of what the rotation adds.
TEST_P(Attention, QueriesAreRotatedInPlace) {
  for (const bool norms : {false, true}) {
    AttentionLayer layer({3, 1, head_dim(34)}, {40}, dtype);
    if (norms) layer.with_norms();
    const int64_t d = layer.heads.head_dim, cols = layer.heads.qkv_cols();
    const Sequences sequences(*ops, dtype, layer.heads, layer.lengths, 1);
    const StepBatch batch = sequences.batch({{0, 40}});
    const Matrix qkv = matrix(40, cols, layer.qkv), table = layer.rope_table(*ops);
    const Matrix qn(*ops, DType::f32, 1, d, layer.q_norm), kn(*ops, DType::f32, 1, d, layer.k_norm);
    ops->rope_store_kv(qkv.view, norms ? qn.view : TensorView{}, norms ? kn.view : TensorView{}, 1e-6f, table.view, layer.heads,
                       sequences.kv, ops->upload_batch(batch));
    EXPECT_TRUE(qkv.intact());
    const auto all = qkv.values();
    std::vector<float> got;
    reference::Vector want, tolerance;
    for (int64_t p = 0; p < 40; ++p) {
      const float* r = layer.rope.data() + p * d;
      for (int64_t h = 0; h < 3; ++h) {
        const auto from = layer.qkv.begin() + p * cols + h * d;
        reference::Vector x(from, from + d);
        if (norms) x = reference::rms_norm(x, as_double(layer.q_norm), 1, d, 1e-6);
        const auto y = reference::rotate(x, {r, r + d / 2}, {r + d / 2, r + d});
        const double before =
            norms ? static_cast<double>(d + 6) * kEps32 + (dtype == DType::bf16 ? 2.1 * half_ulp(dtype) : 0) : 0;
        for (int64_t i = 0; i < d; ++i) {
          const double terms = std::abs(x[i] * r[i % (d / 2)]) + std::abs(x[(i + d / 2) % d] * r[i % (d / 2) + d / 2]);
          got.push_back(all[p * cols + h * d + i]);
          want.push_back(y[i]);
          tolerance.push_back(terms * (before + 3 * kEps32) + (std::abs(y[i]) + terms * before) * half_ulp(dtype));
        }
      }
    }
    EXPECT_TRUE(close_to(got, want, tolerance)) << (norms ? "with norms" : "without");
  }
}

// ---- bits ----

TEST_P(Attention, HeadNormsAreTheNormOp) {
  if (like_gpu()) GTEST_SKIP() << "on a GPU a head's squares are summed in another order than a row's";
  const HeadShape heads{2, 1, 32};
  AttentionLayer normed(heads, {20}, dtype), plain(heads, {20}, dtype);
  normed.with_norms();
  for (int64_t row = 0; row < 20; ++row) {
    for (int64_t h = 0; h < 3; ++h) {
      const float* head = plain.qkv.data() + row * heads.qkv_cols() + h * 32;
      Matrix out = matrix(1, 32);
      ops->rms_norm(out.view, matrix(1, 32, {head, head + 32}).view, weights(h < 2 ? normed.q_norm : normed.k_norm).view,
                    1e-6f);
      const auto values = out.values();
      std::copy(values.begin(), values.end(), plain.qkv.begin() + row * heads.qkv_cols() + h * 32);
    }
  }
  EXPECT_TRUE(same_bytes(normed.run(*ops, dtype, normed.one_pass(), 1), plain.run(*ops, dtype, plain.one_pass(), 2)));
}

// The heart of it: one pass, uneven chunks, a token at a time, other pages, other Ops, other heads at its side: the same bytes.
TEST_P(Attention, BitsDoNotDependOnTheWay) {
  const HeadShape heads{9, 3, head_dim(34)};
  for (const int32_t window : {0, 3, 21}) {
    AttentionLayer layer(heads, {70, 17, 3, 33}, dtype);
    layer.window = window;
    const auto want = layer.run(*ops, dtype, layer.one_pass(), 1);
    EXPECT_TRUE(same_bytes(want, layer.run(*ops, dtype, layer.one_pass(), 99))) << "pages";
    EXPECT_TRUE(same_bytes(want, layer.run(*ops, dtype, layer.chunks({5, 1, 16, 2, 31}), 3))) << "chunks";
    EXPECT_TRUE(same_bytes(want, layer.run(*ops, dtype, layer.chunks({1}), 4))) << "a token at a time";
    with_others([&](Ops& other, const std::string& which) {
      EXPECT_TRUE(same_bytes(want, layer.run(other, dtype, layer.chunks({9, 40}), 5))) << which;
    });
    // Ranks with 6 + 3 of the 9 heads, 2 + 1 of the 3 kv heads.
    const int64_t d = heads.head_dim, n_rows = layer.first_row(4);
    for (const Range groups : {Range{0, 2}, Range{2, 3}}) {
      AttentionLayer part(HeadShape{3 * groups.size(), groups.size(), d}, layer.lengths, dtype);
      part.window = window;
      for (int64_t r = 0; r < n_rows; ++r) {
        float* to = part.qkv.data() + r * part.heads.qkv_cols();
        const float* from = layer.qkv.data() + r * heads.qkv_cols();
        to = std::copy(from + 3 * groups.begin * d, from + 3 * groups.end * d, to);
        to = std::copy(from + (9 + groups.begin) * d, from + (9 + groups.end) * d, to);
        std::copy(from + (12 + groups.begin) * d, from + (12 + groups.end) * d, to);
      }
      const auto got = part.run(*ops, dtype, part.chunks({64, 3}), 6);
      for (int64_t r = 0; r < n_rows; ++r) {
        ASSERT_EQ(0, std::memcmp(got.data() + r * 3 * groups.size() * d, want.data() + (r * 9 + 3 * groups.begin) * d,
                                 static_cast<size_t>(3 * groups.size() * d) * 4))
            << "heads of row " << r;
      }
    }
  }
}

// More shapes of heads, longer sequences, and steps in which some sequences prefill while others decode.
TEST_P(Attention, BitsDoNotDependOnTheWayForLongSequences) {
  std::vector<AttentionLayer> layers = {{{4, 2, 16}, {90, 5, 150}, dtype}, {{5, 1, head_dim(20)}, {140}, dtype}};
  if (on_gpu()) {
    layers = {{{4, 2, 16}, {90, 5, 300}, dtype},
              {{24, 1, 64}, {40}, dtype},
              {{9, 3, 64}, {1, 17, 300, 33}, dtype},
              {{32, 8, 128}, {600, 31, 1100}, dtype},
              {{8, 8, 32}, {400, 64}, dtype}};
    layers[4].window = 100;
  }
  layers[0].window = 16;
  layers[0].with_norms(), layers[1].with_norms();
  for (const AttentionLayer& layer : layers) {
    const auto want = layer.run(*ops, dtype, layer.one_pass(), 1);
    EXPECT_TRUE(same_bytes(want, layer.run(*ops, dtype, layer.chunks({1}), 2))) << "a token at a time";
    EXPECT_TRUE(same_bytes(want, layer.run(*ops, dtype, layer.chunks({7}), 3))) << "by sevens";
    EXPECT_TRUE(same_bytes(want, layer.run(*ops, dtype, layer.chunks({1, 130}), 4))) << "some by one, some by 130";
  }
}

// A later token's infinite value is never multiplied into an earlier row, not even by zero.
TEST_P(Attention, LaterTokensDoNotReachEarlierRows) {
  if (like_gpu()) GTEST_SKIP() << "a matrix unit multiplies what a row doesn't see by zero: infinity spoils its tile of 16";
  const HeadShape heads{2, 1, 16};
  AttentionLayer good(heads, {37}, dtype), bad(heads, {37}, dtype);
  for (int64_t i = 0; i < 16; ++i) bad.qkv[36 * heads.qkv_cols() + 48 + i] = std::numeric_limits<float>::infinity();
  auto want = good.run(*ops, dtype, good.one_pass(), 1), got = bad.run(*ops, dtype, bad.one_pass(), 1);
  EXPECT_FALSE(std::isfinite(got.back()));
  want.resize(36 * 32), got.resize(36 * 32);
  EXPECT_TRUE(same_bytes(want, got));
}

// ---- refusals ----

class Shapes {  // three tokens of one sequence, and calls with this or that
 public:
  Shapes(Ops& ops, DType dtype)
      : sequences(ops, dtype, {2, 1, 16}, {3}, 1),
        batch(sequences.batch({{0, 3}})),
        device(ops.upload_batch(batch)),
        qkv(ops, dtype, 3, 64),
        out(ops, dtype, 3, 32),
        ops_(&ops) {}
  void call(TensorView to, TensorView x, HeadShape heads, KvPages kv, int32_t window) const {
    ops_->attention(to, x, heads, kv, 1, window, device);
  }
  Sequences sequences;
  StepBatch batch;
  DeviceBatch device;
  Matrix qkv, out;

 private:
  Ops* ops_;
};

TEST_P(Attention, RefusesShapesThatDoNotFit) {
  const Shapes s(*ops, dtype);
  const HeadShape heads{2, 1, 16};
  EXPECT_THROW(s.call(s.out.view, matrix(2, 64).view, heads, s.sequences.kv, 0), Error);
  EXPECT_THROW(s.call(matrix(3, 24).view, s.qkv.view, heads, s.sequences.kv, 0), Error);
  EXPECT_THROW(s.call(s.out.view, s.qkv.view, {3, 2, 16}, s.sequences.kv, 0), Error);
  const Matrix table(*ops, DType::f32, 3, 16, {}, 0), narrow(*ops, DType::f32, 3, 8, {}, 0);
  const auto store = [&](TensorView x, TensorView rope) {
    ops->rope_store_kv(x, {}, {}, 0, rope, heads, s.sequences.kv, s.device);
  };
  EXPECT_THROW(store(matrix(2, 64).view, table.view), Error);
  EXPECT_THROW(store(matrix(3, 72).view, table.view), Error);
  EXPECT_THROW(store(s.qkv.view, narrow.view), Error);
}

TEST_P(Attention, RefusesWhatWouldReadBeyondTheEnd) {
  if (like_gpu()) GTEST_SKIP() << "a GPU takes its caller's word for the number of pages and of positions";
  const Shapes s(*ops, dtype);
  const HeadShape heads{2, 1, 16};
  KvPages none = s.sequences.kv;
  none.n_pages = 0;
  EXPECT_THROW(s.call(s.out.view, s.qkv.view, heads, none, 0), Error);
  EXPECT_THROW(s.call(s.out.view, s.qkv.view, heads, s.sequences.kv, -1), Error);
  const Matrix table(*ops, DType::f32, 2, 16, {}, 0);
  EXPECT_THROW(ops->rope_store_kv(s.qkv.view, {}, {}, 0, table.view, heads, s.sequences.kv, s.device), Error);
}

INSTANTIATE_TEST_SUITE_P(Cpu, Attention, cpu_cases(), case_name);
INSTANTIATE_TEST_SUITE_P(Apart, Attention, apart_cases(), case_name);
INSTANTIATE_TEST_SUITE_P(Cuda, Attention, cuda_cases(), case_name);

}  // namespace
}  // namespace lockstep
