#include <algorithm>
#include <numeric>

#include "tests/ops/ops_testing.h"

namespace lockstep {
namespace {

// One layer's cache and the batches of several sequences over it, pages dealt in shuffled order.
struct Sequences {
  HeadShape heads;
  std::vector<int32_t> lengths;  // of each sequence, in the end
  std::vector<std::vector<PageId>> pages;
  Buffer cache;
  KvPages kv;

  Sequences(Ops& ops, DType dtype, HeadShape heads, std::vector<int32_t> lengths, uint64_t seed)
      : heads(heads), lengths(std::move(lengths)) {
    std::vector<PageId> order;
    for (const int32_t n : this->lengths) order.resize(order.size() + static_cast<size_t>(n + kPageSize - 1) / kPageSize);
    std::iota(order.begin(), order.end(), 0);
    for (size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[philox4x32(seed, {static_cast<uint32_t>(i), 0, 0, 0})[0] % i]);
    }
    size_t next = 0;
    for (const int32_t n : this->lengths) {
      const auto n_pages = static_cast<size_t>(n + kPageSize - 1) / kPageSize;
      pages.emplace_back(order.begin() + static_cast<std::ptrdiff_t>(next),
                         order.begin() + static_cast<std::ptrdiff_t>(next + n_pages));
      next += n_pages;
    }
    const size_t bytes = ops.kv_page_bytes(dtype, heads.n_kv_heads, heads.head_dim);
    cache = ops.allocate(bytes * order.size() + 1);
    std::memset(cache.data(), 0xFF, cache.bytes());  // NaN: what was not written must not be used
    kv = {cache.data(), dtype, static_cast<int64_t>(order.size()), heads.n_kv_heads, heads.head_dim};
  }

  // New tokens [begin, end) of each sequence.
  StepBatch batch(const std::vector<Range>& ranges) const {
    StepBatch b;
    b.q_offsets = b.page_offsets = {0};
    for (size_t s = 0; s < ranges.size(); ++s) {
      if (ranges[s].size() == 0) continue;
      for (int64_t p = ranges[s].begin; p < ranges[s].end; ++p) b.positions.push_back(static_cast<int32_t>(p));
      b.kv_lengths.push_back(static_cast<int32_t>(ranges[s].end));
      b.q_offsets.push_back(static_cast<int32_t>(b.positions.size()));
      const auto n = (ranges[s].end + kPageSize - 1) / kPageSize;
      b.pages.insert(b.pages.end(), pages[s].begin(), pages[s].begin() + n);
      b.page_offsets.push_back(static_cast<int32_t>(b.pages.size()));
    }
    b.token_ids.assign(b.positions.size(), 0);
    return b;
  }
};

struct Layer {  // inputs of one attention layer over all sequences, and how to run it in steps
  HeadShape heads;
  std::vector<int32_t> lengths;
  std::vector<float> qkv;   // [sum of lengths, qkv_cols], sequence by sequence
  std::vector<float> rope;  // [max length, head_dim]
  std::vector<float> q_norm, k_norm;
  float scale = 0.3f;
  int32_t window = 0;

  Layer(HeadShape heads, std::vector<int32_t> lengths, DType dtype) : heads(heads), lengths(std::move(lengths)) {
    const int64_t n = std::accumulate(this->lengths.begin(), this->lengths.end(), int64_t{0});
    qkv = random_values(n * heads.qkv_cols(), 11, dtype, 2.0f);
    const int64_t half = heads.head_dim / 2;
    for (int32_t p = 0; p < *std::max_element(this->lengths.begin(), this->lengths.end()); ++p) {
      for (int64_t i = 0; i < half; ++i) rope.push_back(static_cast<float>(std::cos(p / (1.0 + static_cast<double>(i)))));
      for (int64_t i = 0; i < half; ++i) rope.push_back(static_cast<float>(std::sin(p / (1.0 + static_cast<double>(i)))));
    }
  }
  int64_t first_row(size_t s) const {
    return std::accumulate(lengths.begin(), lengths.begin() + static_cast<std::ptrdiff_t>(s), int64_t{0});
  }

  // steps[i][s]: the new tokens of sequence s in step i. Returns out [sum of lengths, n_heads head_dim] by sequence.
  std::vector<float> run(Ops& ops, DType dtype, const std::vector<std::vector<Range>>& steps, uint64_t seed) const {
    Sequences sequences(ops, dtype, heads, lengths, seed);
    const int64_t cols = heads.n_heads * heads.head_dim, qkv_cols = heads.qkv_cols();
    std::vector<float> all(static_cast<size_t>(first_row(lengths.size()) * cols), -1e30f);
    const Matrix table(ops, DType::f32, static_cast<int64_t>(rope.size()) / heads.head_dim, heads.head_dim, rope);
    Matrix qn(ops, DType::f32, 1, heads.head_dim), kn(ops, DType::f32, 1, heads.head_dim);
    if (!q_norm.empty()) ops.upload(qn.view, q_norm.data()), ops.upload(kn.view, k_norm.data());
    for (const auto& ranges : steps) {
      const StepBatch batch = sequences.batch(ranges);
      const DeviceBatch device = ops.upload_batch(batch);
      std::vector<float> rows;
      for (size_t s = 0; s < ranges.size(); ++s) {
        const float* from = qkv.data() + (first_row(s) + ranges[s].begin) * qkv_cols;
        rows.insert(rows.end(), from, from + ranges[s].size() * qkv_cols);
      }
      const Matrix x(ops, dtype, batch.n_tokens(), qkv_cols, rows);
      const Matrix out(ops, dtype, batch.n_tokens(), cols);
      const bool norm = !q_norm.empty();
      ops.rope_store_kv(x.view, norm ? qn.view : TensorView{}, norm ? kn.view : TensorView{}, 1e-6f, table.view, heads,
                        sequences.kv, device);
      ops.attention(out.view, x.view, heads, sequences.kv, scale, window, device);
      EXPECT_TRUE(x.intact() && out.intact());
      const auto values = out.values();
      int64_t row = 0;
      for (size_t s = 0; s < ranges.size(); ++s) {
        std::copy(values.begin() + row * cols, values.begin() + (row + ranges[s].size()) * cols,
                  all.begin() + (first_row(s) + ranges[s].begin) * cols);
        row += ranges[s].size();
      }
    }
    return all;
  }
  std::vector<std::vector<Range>> one_pass() const {
    std::vector<Range> ranges;
    for (const int32_t n : lengths) ranges.push_back({0, n});
    return {ranges};
  }
  std::vector<std::vector<Range>> chunks(std::vector<int64_t> sizes) const {  // sizes are used in turn, all sequences at once
    std::vector<std::vector<Range>> steps;
    std::vector<int64_t> at(lengths.size(), 0);
    size_t turn = 0;
    for (bool more = true; more;) {
      more = false;
      std::vector<Range> ranges;
      for (size_t s = 0; s < lengths.size(); ++s) {
        const int64_t end = std::min<int64_t>(lengths[s], at[s] + sizes[turn++ % sizes.size()]);
        ranges.push_back({at[s], end});
        at[s] = end;
        more |= end < lengths[s];
      }
      steps.push_back(ranges);
    }
    return steps;
  }
};

using Attention = OpsTest;

// Keys are one-hot by position, a query of 200 at place j picks value row j (the other weights are e^-200: 0 in f32).
TEST_P(Attention, AOneHotQueryPicksOneValueRow) {
  const HeadShape heads{1, 1, 4};
  Layer layer(heads, {4}, dtype);
  layer.scale = 1;
  for (size_t i = 0; i < layer.rope.size(); ++i) layer.rope[i] = i % 4 < 2 ? 1.0f : 0.0f;  // no rotation
  layer.qkv = {/* q */ 200, 0,   0, 0,   /* k */ 1, 0, 0, 0, /* v */ 1, 2,  3,  4,         //
               200,         0,   0, 0,   0,         1, 0, 0, 5,         6,  7,  8,         //
               0,           200, 0, 0,   0,         0, 1, 0, 9,         10, 11, 12,        //
               0,           0,   0, 200, 0,         0, 0, 1, 13,        14, 15, 16};
  EXPECT_EQ(layer.run(*ops, dtype, layer.one_pass(), 1),
            (std::vector<float>{1, 2, 3, 4, 1, 2, 3, 4, 5, 6, 7, 8, 13, 14, 15, 16}));
}

TEST_P(Attention, MatchesTheReference) {
  for (const HeadShape heads : {HeadShape{3, 1, 16}, HeadShape{4, 2, 10}, HeadShape{9, 3, 64}, HeadShape{7, 1, 34}}) {
    for (const int32_t window : {0, 1, 5, 17, 40}) {
      Layer layer(heads, {33, 1, 31, 129, 2, 32}, dtype);
      layer.window = window;
      const auto got = layer.run(*ops, dtype, layer.chunks({7, 1, 16, 33}), 5);
      const int64_t d = heads.head_dim, cols = heads.n_heads * d, group = heads.n_heads / heads.n_kv_heads;
      reference::Vector want, tolerance;
      const auto rotated = [&](int64_t row, int64_t column, int64_t position) {
        const float* x = layer.qkv.data() + row * heads.qkv_cols() + column;
        const float* r = layer.rope.data() + position * d;
        auto y = reference::rotate({x, x + d}, {r, r + d / 2}, {r + d / 2, r + d});
        for (double& v : y) v = rounded(static_cast<float>(v), dtype);
        return y;
      };
      for (size_t s = 0; s < layer.lengths.size(); ++s) {
        const int64_t row0 = layer.first_row(s);
        for (int64_t i = 0; i < layer.lengths[s]; ++i) {
          for (int64_t h = 0; h < heads.n_heads; ++h) {
            reference::Vector keys, values, sum_abs;
            for (int64_t j = 0; j <= i; ++j) {
              const auto k = rotated(row0 + j, (heads.n_heads + h / group) * d, j);
              keys.insert(keys.end(), k.begin(), k.end());
              const float* v =
                  layer.qkv.data() + (row0 + j) * heads.qkv_cols() + (heads.n_heads + heads.n_kv_heads + h / group) * d;
              values.insert(values.end(), v, v + d);
            }
            const auto q = rotated(row0 + i, h * d, i);
            const int64_t first = window == 0 ? 0 : std::max<int64_t>(0, i - window + 1);
            const auto out = reference::attend(q, keys, values, first, i, layer.scale, &sum_abs);
            // Scores: |q| |k| <= d * 8 within eps d each, plus rotation's own error; they enter as a relative error of p. In
            // bf16 a rotation may land on the other side of a rounding border: 2^-8 of a factor now and then.
            double score_abs = 0;
            for (int64_t e = 0; e < d; ++e) score_abs += std::abs(q[e]) * 2.0 * layer.scale;
            const double p_error = score_abs * (static_cast<double>(d) + 8) * kEps32 * 2 +
                                   (dtype == DType::bf16 ? 4 * 2.0 * 0x1p-8 * layer.scale : 0);
            for (int64_t e = 0; e < d; ++e) {
              want.push_back(out[e]);
              tolerance.push_back(sum_abs[e] * (2 * p_error + static_cast<double>(i + 8) * 2 * kEps32) +
                                  std::abs(out[e]) * half_ulp(dtype));
            }
          }
        }
      }
      ASSERT_EQ(static_cast<int64_t>(want.size()), layer.first_row(layer.lengths.size()) * cols);
      ASSERT_TRUE(close_to(got, want, tolerance))
          << heads.n_heads << "/" << heads.n_kv_heads << " x " << d << " window " << window;
    }
  }
}

TEST_P(Attention, HeadNormsAreTheNormOp) {
  const HeadShape heads{2, 1, 32};
  Layer normed(heads, {20}, dtype), plain(heads, {20}, dtype);
  normed.q_norm = random_values(32, 21, DType::f32), normed.k_norm = random_values(32, 22, DType::f32);
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

// The heart of it: one pass, uneven chunks, a token at a time, other pages, other threads, other instruction sets, other heads
// at its side: the same bytes.
TEST_P(Attention, BitsDoNotDependOnTheWay) {
  const HeadShape heads{9, 3, 34};
  for (const int32_t window : {0, 3, 21}) {
    Layer layer(heads, {70, 17, 3, 33}, dtype);
    layer.window = window;
    const auto want = layer.run(*ops, dtype, layer.one_pass(), 1);
    EXPECT_TRUE(same_bytes(want, layer.run(*ops, dtype, layer.one_pass(), 99))) << "pages";
    EXPECT_TRUE(same_bytes(want, layer.run(*ops, dtype, layer.chunks({5, 1, 16, 2, 31}), 3))) << "chunks";
    EXPECT_TRUE(same_bytes(want, layer.run(*ops, dtype, layer.chunks({1}), 4))) << "a token at a time";
    for (const auto& name : instruction_sets()) {
      for (const int n_threads : {1, 2, 3}) {
        const auto other = make_cpu_ops({.n_threads = n_threads, .n_slots = 1, .instruction_set = name});
        EXPECT_TRUE(same_bytes(want, layer.run(*other, dtype, layer.chunks({9, 40}), 5)))
            << name << ", " << n_threads << " threads";
      }
    }
    // Ranks with 6 + 3 of the 9 heads, 2 + 1 of the 3 kv heads.
    const int64_t d = heads.head_dim, n_rows = layer.first_row(4);
    for (const Range groups : {Range{0, 2}, Range{2, 3}}) {
      Layer part(HeadShape{3 * groups.size(), groups.size(), d}, layer.lengths, dtype);
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

// A later token's infinite value is never multiplied into an earlier row, not even by zero.
TEST_P(Attention, LaterTokensDoNotReachEarlierRows) {
  const HeadShape heads{2, 1, 16};
  Layer good(heads, {37}, dtype), bad(heads, {37}, dtype);
  for (int64_t i = 0; i < 16; ++i) bad.qkv[36 * heads.qkv_cols() + 48 + i] = std::numeric_limits<float>::infinity();
  auto want = good.run(*ops, dtype, good.one_pass(), 1), got = bad.run(*ops, dtype, bad.one_pass(), 1);
  EXPECT_FALSE(std::isfinite(got.back()));
  want.resize(36 * 32), got.resize(36 * 32);
  EXPECT_TRUE(same_bytes(want, got));
}

TEST_P(Attention, RefusesShapesThatDoNotFit) {
  const HeadShape heads{2, 1, 16};
  Sequences sequences(*ops, dtype, heads, {3}, 1);
  const StepBatch batch = sequences.batch({{0, 3}});
  const DeviceBatch device = ops->upload_batch(batch);
  const Matrix qkv = matrix(3, 64), out = matrix(3, 32), table(*ops, DType::f32, 2, 16);
  const auto call = [&](TensorView o, TensorView x, HeadShape h, KvPages kv, int32_t window) {
    ops->attention(o, x, h, kv, 1, window, device);
  };
  KvPages none = sequences.kv;
  none.n_pages = 0;
  EXPECT_THROW(call(out.view, matrix(2, 64).view, heads, sequences.kv, 0), Error);
  EXPECT_THROW(call(matrix(3, 31).view, qkv.view, heads, sequences.kv, 0), Error);
  EXPECT_THROW(call(out.view, qkv.view, {3, 2, 16}, sequences.kv, 0), Error);
  EXPECT_THROW(call(out.view, qkv.view, heads, none, 0), Error);
  EXPECT_THROW(call(out.view, qkv.view, heads, sequences.kv, -1), Error);
  EXPECT_THROW(ops->rope_store_kv(qkv.view, {}, {}, 0, table.view, heads, sequences.kv, device), Error);  // a short table
}

INSTANTIATE_TEST_SUITE_P(Cpu, Attention, ::testing::ValuesIn(ops_cases()), case_name);

}  // namespace
}  // namespace lockstep
