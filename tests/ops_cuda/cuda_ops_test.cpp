// Ops on a GPU against the double reference, against Ops on the CPU, and against themselves: the same bytes however a step is
// cut. Skipped visibly where there is no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "ops/cuda/cuda_device.h"
#include "ops/ops.h"
#include "tests/ops/ops_testing.h"

namespace lockstep {
namespace {

class CudaOpsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (n_gpus() == 0) GTEST_SKIP() << "no GPU";
    gpu = make_cuda_ops({.device = 0, .n_slots = 64});
    cpu = make_cpu_ops({.n_threads = 4, .n_slots = 64, .instruction_set = {}});
  }
  std::unique_ptr<Ops> gpu, cpu;
};

// As Matrix of ops_testing.h, for memory that the host can't reach.
struct DeviceMatrix {
  DeviceMatrix(Ops& ops, DType dtype, int64_t rows, int64_t cols, int64_t spare = 8)
      : ops(&ops), buffer(ops.allocate(static_cast<size_t>(rows * (cols + spare)) * size_of(dtype))) {
    view = {buffer.data(), dtype, rows, cols, cols + spare};
  }
  DeviceMatrix(Ops& ops, DType dtype, int64_t rows, int64_t cols, const std::vector<float>& values)
      : DeviceMatrix(ops, dtype, rows, cols) {
    ops.upload(view, values.data());
  }
  std::vector<float> values() const {
    std::vector<float> out(static_cast<size_t>(view.rows * view.cols));
    ops->download(out.data(), view);
    return out;
  }
  Ops* ops;
  Buffer buffer;
  TensorView view;
};

// ---- linear ----

TEST_F(CudaOpsTest, LinearMatchesTheReference) {
  for (const auto& [rows, n_out, k] : {std::array<int64_t, 3>{1, 64, 64}, {17, 960, 576}, {300, 72, 1536}, {5, 8, 8}}) {
    const auto x = random_values(rows * k, 1, DType::bf16), w = random_values(n_out * k, 2, DType::bf16),
               bias = random_values(n_out, 3, DType::bf16);
    LinearWeight weight = load(*gpu, DType::bf16, n_out, k, w);
    reference::Vector scale;
    for (const DType type : {DType::bf16, DType::f32}) {
      for (const bool with_bias : {false, true}) {
        if (with_bias) {
          weight.bias = gpu->allocate(static_cast<size_t>(n_out) * 4);
          gpu->upload(weight.bias.matrix(DType::f32, 1, n_out), bias.data());
        } else {
          weight.bias = Buffer();
        }
        const auto want = reference::linear({x.begin(), x.end()}, {w.begin(), w.end()},
                                            with_bias ? reference::Vector(bias.begin(), bias.end()) : reference::Vector(), rows,
                                            n_out, k, &scale);
        const DeviceMatrix in(*gpu, DType::bf16, rows, k, x);
        const DeviceMatrix out(*gpu, type, rows, n_out);
        gpu->linear(out.view, in.view, weight);
        const auto got = out.values();
        for (size_t i = 0; i < want.size(); ++i) {  // one rounding, and a second where a bias is added to a rounded sum
          const double roundings = type == DType::f32 ? 0 : with_bias ? 0x1p-7 : 0x1p-8;
          ASSERT_NEAR(got[i], want[i], scale[i] * 0x1p-24 * static_cast<double>(k) + roundings * (std::abs(want[i]) + 1)) << i;
        }
      }
    }
  }
}

TEST_F(CudaOpsTest, ARowOfAProductDoesntSeeTheOthers) {
  for (const auto& [n_out, k] :
       {std::pair<int64_t, int64_t>{960, 576}, {576, 1536}, {6144, 4096}, {4096, 14336}, {49152, 576}}) {
    const LinearWeight weight = load(*gpu, DType::bf16, n_out, k, random_values(n_out * k, 2, DType::bf16, 0.05f));
    constexpr int64_t kMost = 1030;
    const DeviceMatrix x(*gpu, DType::bf16, kMost, k, random_values(kMost * k, 1, DType::bf16));
    const DType type = n_out > 40000 ? DType::f32 : DType::bf16;
    const DeviceMatrix all(*gpu, type, kMost, n_out);
    gpu->linear(all.view, x.view, weight);
    const auto want = all.values();
    for (const int64_t m : {1, 2, 7, 16, 17, 33, 64, 100, 128, 129, 255, 256, 257, 511, 700, 1024}) {
      const DeviceMatrix few(*gpu, type, m, n_out);
      gpu->linear(few.view, x.view.top(m), weight);
      ASSERT_TRUE(same_bytes(few.values(), {want.begin(), want.begin() + m * n_out}))
          << m << " rows of " << k << " -> " << n_out;
    }
  }
}

// ---- attention ----

struct Layer {
  HeadShape heads;
  int32_t window;
  std::vector<int32_t> lengths;
  std::vector<float> qkv, rope, q_norm, k_norm;
  std::vector<int64_t> begin;  // of each sequence in qkv

  Layer(HeadShape heads, int32_t window, std::vector<int32_t> lengths, bool norms)
      : heads(heads), window(window), lengths(lengths) {
    int64_t n = 0;
    for (const int32_t length : lengths) begin.push_back(n), n += length;
    qkv = random_values(n * heads.qkv_cols(), 5, DType::bf16, 2);
    const int64_t longest = *std::max_element(lengths.begin(), lengths.end()), half = heads.head_dim / 2;
    for (int64_t p = 0; p < longest; ++p)
      for (int64_t i = 0; i < heads.head_dim; ++i) {
        const double angle =
            static_cast<double>(p) * std::pow(10000.0, -static_cast<double>(i % half) / static_cast<double>(half));
        rope.push_back(static_cast<float>(i < half ? std::cos(angle) : std::sin(angle)));
      }
    if (norms) q_norm = random_values(heads.head_dim, 6, DType::bf16), k_norm = random_values(heads.head_dim, 7, DType::bf16);
  }

  // New tokens of each sequence in steps of chunk[s] tokens; the rows of the result in the order of qkv.
  std::vector<float> run(Ops& ops, const std::vector<int32_t>& chunk, uint64_t seed) const {
    const int64_t cols = heads.qkv_cols(), out_cols = heads.n_heads * heads.head_dim;
    std::vector<std::vector<PageId>> pages(lengths.size());
    std::vector<PageId> order;
    for (const int32_t n : lengths) order.resize(order.size() + static_cast<size_t>(n + kPageSize - 1) / kPageSize);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937_64(seed));
    size_t next = 0;
    for (size_t s = 0; s < lengths.size(); ++s)
      for (int32_t p = 0; p < lengths[s]; p += kPageSize) pages[s].push_back(order[next++]);
    const size_t page_bytes = ops.kv_page_bytes(DType::bf16, heads.n_kv_heads, heads.head_dim);
    const Buffer cache = ops.allocate(page_bytes * order.size());
    const std::vector<float> rubbish(page_bytes / 2 * order.size(), std::nanf(""));  // what was never written must not be used
    ops.upload(cache.matrix(DType::bf16, static_cast<int64_t>(order.size()), static_cast<int64_t>(page_bytes / 2)),
               rubbish.data());
    const KvPages kv{cache.data(), DType::bf16, static_cast<int64_t>(order.size()), heads.n_kv_heads, heads.head_dim};
    const auto vector = [&](const std::vector<float>& v, int64_t rows) {
      return DeviceMatrix(ops, DType::f32, rows, static_cast<int64_t>(v.size()) / std::max<int64_t>(1, rows), v);
    };
    DeviceMatrix rope_matrix(ops, DType::f32, static_cast<int64_t>(rope.size()) / heads.head_dim, heads.head_dim, 0);
    ops.upload(rope_matrix.view, rope.data());
    const DeviceMatrix q = vector(q_norm, q_norm.empty() ? 0 : 1), k = vector(k_norm, k_norm.empty() ? 0 : 1);

    std::vector<float> result(static_cast<size_t>(qkv.size() / cols * out_cols));
    std::vector<int32_t> done(lengths.size(), 0);
    for (bool more = true; more;) {
      StepBatch b;
      b.q_offsets = b.page_offsets = {0};
      std::vector<float> rows;
      std::vector<int64_t> places;
      for (size_t s = 0; s < lengths.size(); ++s) {
        const int32_t n = std::min(chunk[s], lengths[s] - done[s]);
        if (n == 0) continue;
        for (int32_t p = done[s]; p < done[s] + n; ++p) {
          b.positions.push_back(p);
          const auto row = (begin[s] + p) * cols;
          rows.insert(rows.end(), qkv.begin() + row, qkv.begin() + row + cols);
          places.push_back(begin[s] + p);
        }
        done[s] += n;
        b.kv_lengths.push_back(done[s]);
        b.q_offsets.push_back(static_cast<int32_t>(b.positions.size()));
        b.pages.insert(b.pages.end(), pages[s].begin(), pages[s].begin() + (done[s] + kPageSize - 1) / kPageSize);
        b.page_offsets.push_back(static_cast<int32_t>(b.pages.size()));
      }
      more = !b.positions.empty();
      if (!more) break;
      b.token_ids.assign(b.positions.size(), 0);
      const auto n = static_cast<int64_t>(b.positions.size());
      const DeviceMatrix in(ops, DType::bf16, n, cols, rows), out(ops, DType::bf16, n, out_cols);
      const DeviceBatch batch = ops.upload_batch(b);
      ops.rope_store_kv(in.view, q_norm.empty() ? TensorView{} : q.view, k_norm.empty() ? TensorView{} : k.view, 1e-6f,
                        rope_matrix.view, heads, kv, batch);
      ops.attention(out.view, in.view, heads, kv, 1 / std::sqrt(static_cast<float>(heads.head_dim)), window, batch);
      const auto values = out.values();
      for (size_t i = 0; i < places.size(); ++i)
        std::copy_n(values.begin() + static_cast<int64_t>(i) * out_cols, out_cols, result.begin() + places[i] * out_cols);
    }
    return result;
  }
};

std::vector<Layer> layers() {
  return {{{.n_heads = 9, .n_kv_heads = 3, .head_dim = 64}, 0, {1, 17, 300, 33}, false},
          {{.n_heads = 32, .n_kv_heads = 8, .head_dim = 128}, 0, {600, 31, 1100}, false},
          {{.n_heads = 4, .n_kv_heads = 2, .head_dim = 16}, 16, {90, 5, 300}, true},
          {{.n_heads = 8, .n_kv_heads = 8, .head_dim = 32}, 100, {400, 64}, false},
          {{.n_heads = 24, .n_kv_heads = 1, .head_dim = 64}, 0, {40}, true}};
}

TEST_F(CudaOpsTest, AttentionIsThatOfTheCpu) {
  for (const Layer& layer : layers()) {
    const std::vector<int32_t> whole(layer.lengths.size(), 10000);
    const auto want = layer.run(*cpu, whole, 1), got = layer.run(*gpu, whole, 2);
    for (size_t i = 0; i < want.size(); ++i)  // probabilities of a bf16 product: 2^-9 of values up to 2, and the last rounding
      ASSERT_NEAR(got[i], want[i], 0x1p-7 * std::abs(want[i]) + 0x1p-7) << i << " of head_dim " << layer.heads.head_dim;
  }
}

TEST_F(CudaOpsTest, AttentionGivesTheSameBytesHoweverItIsCut) {
  for (const Layer& layer : layers()) {
    const auto want = layer.run(*gpu, std::vector<int32_t>(layer.lengths.size(), 10000), 1);
    EXPECT_TRUE(same_bytes(want, layer.run(*gpu, std::vector<int32_t>(layer.lengths.size(), 1), 2))) << "token by token";
    EXPECT_TRUE(same_bytes(want, layer.run(*gpu, std::vector<int32_t>(layer.lengths.size(), 7), 3))) << "by sevens";
    std::vector<int32_t> mixed;
    for (size_t s = 0; s < layer.lengths.size(); ++s) mixed.push_back(s % 2 == 0 ? 1 : 130);
    EXPECT_TRUE(same_bytes(want, layer.run(*gpu, mixed, 4))) << "some by one, some by 130";
  }
}

// ---- rows ----

TEST_F(CudaOpsTest, RowsAreThoseOfTheCpu) {
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{1, 64}, {37, 576}, {200, 4096}}) {
    const auto x = random_values(rows * cols, 1, DType::bf16, 3), y = random_values(rows * cols, 2, DType::bf16, 3),
               w = random_values(cols, 3, DType::bf16);
    const auto gate_up = random_values(rows * 2 * cols, 4, DType::bf16, 4);
    std::vector<std::vector<float>> results[2];
    for (Ops* ops : {cpu.get(), gpu.get()}) {
      auto& out = results[ops == gpu.get()];
      const DeviceMatrix a(*ops, DType::bf16, rows, cols, x), b(*ops, DType::bf16, rows, cols, y),
          g(*ops, DType::bf16, rows, 2 * cols, gate_up);
      const DeviceMatrix weight(*ops, DType::f32, 1, cols, w), normed(*ops, DType::bf16, rows, cols),
          act(*ops, DType::bf16, rows, cols);
      ops->rms_norm(normed.view, a.view, weight.view, 1e-5f);
      out.push_back(normed.values());
      ops->add_rms_norm(normed.view, a.view, b.view, weight.view, 1e-5f);
      out.push_back(normed.values());
      out.push_back(a.values());
      ops->add(a.view, b.view);
      out.push_back(a.values());
      ops->silu_mul(act.view, g.view);
      out.push_back(act.values());
    }
    for (size_t r = 0; r < results[0].size(); ++r)
      for (size_t i = 0; i < results[0][r].size(); ++i) {
        const float want = results[0][r][i], got = results[1][r][i];
        ASSERT_NEAR(got, want, 0x1.8p-7f * std::abs(want) + 1e-6f) << "result " << r << ", " << i;
      }
    EXPECT_EQ(results[0][2], results[1][2]) << "sums are exact to the bit";
    EXPECT_EQ(results[0][3], results[1][3]);
  }
}

// ---- sampling ----

struct Draws {
  std::vector<SampleRow> samples;
  std::vector<LogitAdjustments> adjustments;
};

StepOutcome sample(Ops& ops, const std::vector<float>& logits, int64_t vocab, const Draws& draws, int64_t step) {
  const auto n = static_cast<int64_t>(draws.samples.size());
  DeviceMatrix matrix(ops, DType::f32, n, vocab, logits);
  StepBatch b;
  b.step = step;
  b.q_offsets = b.page_offsets = {0};
  for (int32_t i = 0; i < n; ++i) {
    b.token_ids.push_back(0), b.positions.push_back(0), b.kv_lengths.push_back(1), b.q_offsets.push_back(i + 1);
    b.pages.push_back(i), b.page_offsets.push_back(i + 1);
  }
  b.samples = draws.samples;
  b.adjustments = draws.adjustments;
  const DeviceBatch batch = ops.upload_batch(b);
  ops.sample(matrix.view, batch);
  return ops.collect(step);
}

TEST_F(CudaOpsTest, DrawsAreThoseOfTheCpu) {
  constexpr int64_t kVocab = 5000, kRows = 48;
  std::mt19937_64 random(3);
  int n_other = 0, n_all = 0;
  for (int64_t step = 0; step < 20; ++step) {
    std::vector<float> logits(kRows * kVocab);
    for (float& x : logits)
      x = static_cast<float>(std::round(std::log(static_cast<double>(random() >> 11) * 0x1p-53 + 1e-9) * -40) / 10);
    Draws draws;
    for (int32_t i = 0; i < kRows; ++i) {
      SampleRow row{.row = i, .slot = i, .request = i, .draw_key = random(), .position = static_cast<int32_t>(step)};
      row.temperature = i % 6 == 0 ? 0.0f : 0.5f + 0.1f * static_cast<float>(i % 9);
      if (i % 3 == 1) row.top_k = 1 + i;
      if (i % 4 == 2) row.top_p = 0.3f + 0.01f * static_cast<float>(i);
      if (i % 5 == 3) row.min_p = 0.1f;
      if (i % 2 == 1) row.n_logprobs = i % 7;
      row.adjusted = i % 8 >= 6;
      if (row.adjusted && step == 0) {
        LogitAdjustments a{
            .slot = i, .presence_penalty = 0.5f, .frequency_penalty = 0.25f, .repetition_penalty = 1.5f, .min_tokens = 5};
        a.end_tokens = {1, 2}, a.bias = {{7, 300.0f}, {9, -100.0f}}, a.prompt = {7, 8, 8}, a.completion = {7, 7, 11};
        draws.adjustments.push_back(a);
      }
      draws.samples.push_back(row);
    }
    const auto want = sample(*cpu, logits, kVocab, draws, step), got = sample(*gpu, logits, kVocab, draws, step);
    ASSERT_EQ(want.sampled.size(), got.sampled.size());
    for (size_t i = 0; i < kRows; ++i, ++n_all) {
      const SampledToken &w = want.sampled[i], &g = got.sampled[i];
      EXPECT_EQ(g.request, w.request);
      EXPECT_EQ(g.position, w.position);
      n_other += g.token != w.token;
      if (draws.samples[i].temperature == 0) {
        EXPECT_EQ(g.token, w.token) << "greedy row " << i;
      }
      ASSERT_EQ(g.top.size(), w.top.size()) << i;
      for (size_t t = 0; t < w.top.size(); ++t) {
        EXPECT_EQ(g.top[t].first, w.top[t].first) << i;
        EXPECT_NEAR(g.top[t].second, w.top[t].second, 1e-5f);
      }
      if (draws.samples[i].n_logprobs >= 0 && g.token == w.token) {
        EXPECT_NEAR(g.logprob, w.logprob, 1e-5f);
      }
    }
    if (step == 0) {
      EXPECT_EQ(got.sampled[6].token, 7) << "a bias of 300";
    }
  }
  // Noise and masses are rounded in other places: a draw may differ where two tokens are equal to the last bits.
  EXPECT_LE(n_other, n_all / 200) << n_other << " of " << n_all;
}

TEST_F(CudaOpsTest, ABrokenRowIsReportedAndSpoilsNoOther) {
  constexpr int64_t kVocab = 100;
  std::vector<float> logits(3 * kVocab, 1.0f);
  logits[50] = std::nanf("");
  logits[kVocab + 3] = 2;
  for (int64_t i = 0; i < kVocab; ++i) logits[2 * kVocab + i] = -INFINITY;
  Draws draws;
  for (int32_t i = 0; i < 3; ++i) draws.samples.push_back({.row = i, .slot = i, .request = i});
  const auto got = sample(*gpu, logits, kVocab, draws, 0);
  EXPECT_FALSE(got.sampled[0].finite);
  EXPECT_TRUE(got.sampled[1].finite);
  EXPECT_EQ(got.sampled[1].token, 3);
  EXPECT_FALSE(got.sampled[2].finite);
}

TEST_F(CudaOpsTest, EqualLogitsAreTakenByTheirIds) {
  constexpr int64_t kVocab = 3000;
  const std::vector<float> logits(2 * kVocab, 0.25f);
  Draws draws;
  draws.samples.push_back({.row = 0, .slot = 0, .request = 0, .n_logprobs = 5});
  draws.samples.push_back({.row = 1, .slot = 1, .request = 1, .draw_key = 9, .temperature = 1, .top_k = 3});
  for (int32_t step = 0; step < 30; ++step) {
    draws.samples[1].position = step;
    const auto got = sample(*gpu, logits, kVocab, draws, step);
    EXPECT_EQ(got.sampled[0].token, 0);
    ASSERT_EQ(got.sampled[0].top.size(), 5u);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(got.sampled[0].top[static_cast<size_t>(i)].first, i);
    EXPECT_LT(got.sampled[1].token, 3);
  }
}

}  // namespace
}  // namespace lockstep
