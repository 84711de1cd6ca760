// The CPU ops at the shapes of SmolLM2-135M (hidden 576, 9 + 2 * 3 heads of 64, ffn 1536, vocab 49152), with counters to hold
// against the machine's peak: flops (2 a product and sum) and bytes (weights, or keys and values, each read once), per second.
//   bench_cpu_ops --benchmark_filter=linear        threads: LOCKSTEP_BENCH_THREADS, 1 by default
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "base/philox.h"
#include "ops/ops.h"

namespace lockstep {
namespace {

int n_threads() {
  const char* text = std::getenv("LOCKSTEP_BENCH_THREADS");
  return text ? std::atoi(text) : 1;
}

std::vector<float> random_values(int64_t n, float scale = 1.0f) {
  std::vector<float> values(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; i += 4) {
    const auto words = philox4x32(1, {static_cast<uint32_t>(i), 0, 0, 0});
    for (int64_t j = i; j < std::min(n, i + 4); ++j) values[j] = (2 * uniform_open(words[j - i]) - 1) * scale;
  }
  return values;
}

struct Matrix {
  Buffer buffer;
  TensorView view;
  Matrix(Ops& ops, DType dtype, int64_t rows, int64_t cols)
      : buffer(ops.allocate(static_cast<size_t>(rows * cols) * size_of(dtype))) {
    view = buffer.matrix(dtype, rows, cols);
    ops.upload(view, random_values(rows * cols).data());
  }
};

// One thread is timed by its own clock, which other programs on the machine don't slow; several by the wall's.
void clock(benchmark::internal::Benchmark* b) {
  if (n_threads() > 1) b->UseRealTime();
}

void rates(benchmark::State& state, double flops, double bytes) {
  if (flops > 0) state.counters["flops"] = benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["bytes"] = benchmark::Counter(bytes, benchmark::Counter::kIsIterationInvariantRate);
}

// Weights are taken in turn from copies that together exceed the caches, as the layers of a model do.
void linear(benchmark::State& state, DType dtype) {
  const int64_t n_rows = state.range(0), k = state.range(1), n_out = state.range(2);
  const auto ops = make_cpu_ops({.n_threads = n_threads(), .n_slots = 1, .instruction_set = ""});
  const int64_t bytes = n_out * k * static_cast<int64_t>(size_of(dtype));
  std::vector<LinearWeight> weights;
  const auto row = random_values(k);
  for (int64_t i = 0; i < std::max<int64_t>(1, (int64_t{128} << 20) / bytes); ++i) {
    weights.push_back(ops->load_linear(n_out, k, dtype, [&](Range rows, float* out) {
      for (int64_t r = rows.begin; r < rows.end; ++r) out = std::copy(row.begin(), row.end(), out);
    }));
  }
  const Matrix x(*ops, dtype, n_rows, k), out(*ops, dtype, n_rows, n_out);
  size_t turn = 0;
  for (auto _ : state) ops->linear(out.view, x.view, weights[turn++ % weights.size()]);
  rates(state, 2.0 * static_cast<double>(n_rows * k * n_out), static_cast<double>(bytes));
}

void linear_shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"M", "K", "N"});
  for (const auto& [k, n] : {std::pair{576, 960}, {576, 576}, {576, 3072}, {1536, 576}, {576, 49152}}) {
    for (const int m : {1, 8, 64, 512}) {
      if (n < 10000 || m <= 64) b->Args({m, k, n});
    }
  }
}
BENCHMARK_CAPTURE(linear, f32, DType::f32)->Apply(linear_shapes)->Apply(clock)->MinTime(0.2);
BENCHMARK_CAPTURE(linear, bf16, DType::bf16)->Apply(linear_shapes)->Apply(clock)->MinTime(0.2);

// Q new tokens at the end of each of S sequences of length L.
void attention(benchmark::State& state, DType dtype) {
  const int64_t n_seqs = state.range(0), length = state.range(1), n_new = state.range(2);
  const auto ops = make_cpu_ops({.n_threads = n_threads(), .n_slots = 1, .instruction_set = ""});
  const HeadShape heads{9, 3, 64};
  const int64_t n_pages = (length + kPageSize - 1) / kPageSize;
  const auto page_bytes = static_cast<int64_t>(ops->kv_page_bytes(dtype, heads.n_kv_heads, heads.head_dim));
  const Matrix cache(*ops, dtype, n_seqs * n_pages, page_bytes / static_cast<int64_t>(size_of(dtype)));
  StepBatch batch;
  batch.step = 1;
  batch.q_offsets = batch.page_offsets = {0};
  for (int64_t s = 0; s < n_seqs; ++s) {
    for (int64_t p = length - n_new; p < length; ++p)
      batch.positions.push_back(static_cast<int32_t>(p)), batch.token_ids.push_back(0);
    for (int64_t p = 0; p < n_pages; ++p) batch.pages.push_back(static_cast<int32_t>(p * n_seqs + s));
    batch.q_offsets.push_back(static_cast<int32_t>(batch.positions.size()));
    batch.kv_lengths.push_back(static_cast<int32_t>(length));
    batch.page_offsets.push_back(static_cast<int32_t>(batch.pages.size()));
  }
  const Matrix qkv(*ops, dtype, batch.n_tokens(), heads.qkv_cols()), out(*ops, dtype, batch.n_tokens(), 576);
  const KvPages kv{cache.buffer.data(), dtype, n_seqs * n_pages, heads.n_kv_heads, heads.head_dim};
  const DeviceBatch device = ops->upload_batch(batch);
  for (auto _ : state) ops->attention(out.view, qkv.view, heads, kv, 0.125f, 0, device);
  double positions = 0;
  for (const int32_t p : batch.positions) positions += p + 1;
  rates(state, 4.0 * 576 * positions, static_cast<double>(n_seqs * n_pages * page_bytes));
}
void attention_shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"S", "L", "Q"})->Args({1, 600, 600})->Args({1, 4000, 512})->Args({1, 1000, 1})->Args({32, 1000, 1});
}
BENCHMARK_CAPTURE(attention, f32, DType::f32)->Apply(attention_shapes)->Apply(clock)->MinTime(0.2);
BENCHMARK_CAPTURE(attention, bf16, DType::bf16)->Apply(attention_shapes)->Apply(clock)->MinTime(0.2);

void rms_norm(benchmark::State& state, DType dtype) {
  const auto ops = make_cpu_ops({.n_threads = n_threads(), .n_slots = 1, .instruction_set = ""});
  const Matrix x(*ops, dtype, 512, 576), out(*ops, dtype, 512, 576), weight(*ops, DType::f32, 1, 576);
  for (auto _ : state) ops->rms_norm(out.view, x.view, weight.view, 1e-5f);
  rates(state, 0, 2.0 * 512 * 576 * static_cast<double>(size_of(dtype)));
}
BENCHMARK_CAPTURE(rms_norm, f32, DType::f32)->Apply(clock)->MinTime(0.1);
BENCHMARK_CAPTURE(rms_norm, bf16, DType::bf16)->Apply(clock)->MinTime(0.1);

void silu_mul(benchmark::State& state, DType dtype) {
  const auto ops = make_cpu_ops({.n_threads = n_threads(), .n_slots = 1, .instruction_set = ""});
  const Matrix gate_up(*ops, dtype, 512, 3072), out(*ops, dtype, 512, 1536);
  for (auto _ : state) ops->silu_mul(out.view, gate_up.view);
  rates(state, 0, 3.0 * 512 * 1536 * static_cast<double>(size_of(dtype)));
}
BENCHMARK_CAPTURE(silu_mul, f32, DType::f32)->Apply(clock)->MinTime(0.1);
BENCHMARK_CAPTURE(silu_mul, bf16, DType::bf16)->Apply(clock)->MinTime(0.1);

// 16 rows of 49152 logits of a spread like a model's.
void sample(benchmark::State& state, SampleRow rule) {
  const auto ops = make_cpu_ops({.n_threads = n_threads(), .n_slots = 16, .instruction_set = ""});
  const int64_t vocab = 49152, n_rows = 16;
  StepBatch batch;
  batch.token_ids.assign(16, 0), batch.positions.assign(16, 0), batch.kv_lengths.assign(16, 1), batch.pages.assign(16, 0);
  batch.q_offsets = batch.page_offsets = {0};
  for (int32_t r = 0; r < 16; ++r) {
    batch.q_offsets.push_back(r + 1), batch.page_offsets.push_back(r + 1);
    rule.row = rule.slot = r, rule.draw_key = static_cast<uint64_t>(r);
    batch.samples.push_back(rule);
  }
  Matrix logits(*ops, DType::f32, n_rows, vocab);
  std::vector<float> values(static_cast<size_t>(n_rows * vocab));
  const auto a = random_values(n_rows * vocab), b = random_values(n_rows * vocab / 2), c = random_values(n_rows * vocab / 4);
  for (size_t i = 0; i < values.size(); ++i) values[i] = 4 * (a[i] + b[i / 2] + c[i / 4]);  // about normal, deviation 4
  ops->upload(logits.view, values.data());
  for (auto _ : state) {
    ++batch.step;
    ops->sample(logits.view, ops->upload_batch(batch));
    benchmark::DoNotOptimize(ops->collect(batch.step));
  }
  rates(state, 0, static_cast<double>(n_rows * vocab * 4));
}
#define SAMPLE(name, ...) BENCHMARK_CAPTURE(sample, name, SampleRow{__VA_ARGS__})->Apply(clock)->MinTime(0.1)
SAMPLE(greedy, .temperature = 0);
SAMPLE(temperature_1, .temperature = 1);
SAMPLE(top_k_50, .temperature = 1, .top_k = 50);
SAMPLE(top_p_95, .temperature = 1, .top_p = 0.95f);
SAMPLE(min_p_5, .temperature = 1, .min_p = 0.05f);
SAMPLE(greedy_logprobs_5, .temperature = 0, .n_logprobs = 5);

}  // namespace
}  // namespace lockstep

BENCHMARK_MAIN();
