// Each op of a Llama-3.1-8B layer on one GPU, beside what the same GPU does at most in the same run: an 8192^3 bf16 product and
// a large copy. A line: time, bytes and flops by the op's own formula, and their share of those rates.
//   cuda_ops_bench [NAME...]     (all ops, or those whose name contains one of the words)
// SUSTAIN=S: each op again for S seconds, as a run would have it: its time then, and watts by the GPU's energy counter.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "ops/cuda/cuda_device.h"
#include "ops/ops.h"
#include "telemetry/nvml.h"

namespace lockstep {
namespace {

// ---- measuring ----

double seconds_of(const std::function<void()>& work, int repeats) {
  work();
  cudaDeviceSynchronize();
  std::vector<double> times;
  for (int round = 0; round < 5; ++round) {
    // Ops run on a stream of their own; events of the default stream would not wait for it. So: the wall of many, with the
    // device idle before and after.
    timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (int i = 0; i < repeats; ++i) work();
    cudaDeviceSynchronize();
    clock_gettime(CLOCK_MONOTONIC, &b);
    times.push_back((static_cast<double>(b.tv_sec - a.tv_sec) + 1e-9 * static_cast<double>(b.tv_nsec - a.tv_nsec)) / repeats);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// Time of each, and watts, of `work` again and again for so long.
void report_sustained(const std::function<void()>& work, double each, double wanted_s) {
  static std::string why_not;
  static const ReadGpu read = nvml_reader(gpu_bus_id(0), kNvmlLibrary, why_not);
  const int n = std::max(1, static_cast<int>(wanted_s / each)) / 5 + 1;
  const double before = read ? read().energy_j : 0, s = seconds_of(work, n);
  const double watts = read ? (read().energy_j - before) / (s * n * 5) : 0;
  std::printf("  sustained %9.1f us, %.0f W", s * 1e6, watts);
}

struct Peak {
  double bytes_a_second = 0, flops = 0;
};
Peak peak;
std::vector<std::string> wanted;

void report(const std::string& name, double bytes, double flops, const std::function<void()>& work, int repeats = 20) {
  if (!wanted.empty() &&
      std::none_of(wanted.begin(), wanted.end(), [&](const auto& w) { return name.find(w) != std::string::npos; }))
    return;
  const double s = seconds_of(work, repeats);
  std::printf("%-34s %9.1f us  %7.2f TB/s %5.1f %% of copy  %7.1f TFLOP/s %5.1f %% of product", name.c_str(), s * 1e6,
              bytes / s * 1e-12, 100 * bytes / s / peak.bytes_a_second, flops / s * 1e-12, 100 * flops / s / peak.flops);
  if (const char* sustain = std::getenv("SUSTAIN")) report_sustained(work, s, std::atof(sustain));
  std::puts("");
  std::fflush(stdout);
}

struct Matrix {
  Matrix(Ops& ops, DType dtype, int64_t rows, int64_t cols)
      : buffer(ops.allocate(static_cast<size_t>(rows * cols) * size_of(dtype))) {
    view = buffer.matrix(dtype, rows, cols);
    cudaMemset(buffer.data(), 0x3c, buffer.bytes());  // 0.0117 in bf16 and f32
  }
  Buffer buffer;
  TensorView view;
};

LinearWeight weight(Ops& ops, int64_t n_out, int64_t k) {
  uint32_t state = 1;
  return ops.load_linear(n_out, k, DType::bf16, [&](Range rows, float* out) {
    for (int64_t i = 0; i < rows.size() * k; ++i) {
      state = state * 1664525 + 1013904223;
      out[i] = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-36f;
    }
  });
}

std::vector<float> random_values(int64_t n) {
  std::vector<float> values(static_cast<size_t>(n));
  uint32_t state = 7;
  for (float& v : values) v = static_cast<float>(static_cast<int32_t>(state = state * 1664525 + 1013904223)) * 0x1p-31f;
  return values;
}

// ---- the ops ----

void measure_peak(Ops& ops) {
  const size_t bytes = size_t{4} << 30;
  const Buffer a = ops.allocate(bytes), b = ops.allocate(bytes);
  const double copy = seconds_of([&] { cudaMemcpyAsync(b.data(), a.data(), bytes, cudaMemcpyDeviceToDevice, nullptr); }, 5);
  peak.bytes_a_second = 2 * static_cast<double>(bytes) / copy;
  const LinearWeight w = weight(ops, 8192, 8192);
  const Matrix x(ops, DType::bf16, 8192, 8192), out(ops, DType::bf16, 8192, 8192);
  ops.upload(x.view, random_values(8192 * 8192).data());
  const double product = seconds_of([&] { ops.linear(out.view, x.view, w); }, 10);
  peak.flops = 2.0 * 8192 * 8192 * 8192 / product;
  std::printf("copy %.2f TB/s, 8192^3 bf16 product %.0f TFLOP/s\n", peak.bytes_a_second * 1e-12, peak.flops * 1e-12);
}

void measure_linear(Ops& ops) {
  struct Shape {
    const char* name;
    int64_t n_out, k;
  };
  for (const Shape& s : {Shape{"qkv", 6144, 4096}, {"o", 4096, 4096}, {"gate_up", 28672, 4096}, {"down", 4096, 14336}}) {
    const LinearWeight w = weight(ops, s.n_out, s.k);
    for (const int64_t m : {64, 256, 512, 1024, 8192}) {
      const Matrix x(ops, DType::bf16, m, s.k), out(ops, DType::bf16, m, s.n_out);
      const auto n = static_cast<double>(s.n_out), k = static_cast<double>(s.k), rows = static_cast<double>(m);
      report(concat("linear ", s.name, " M ", m), 2 * (n * k + rows * (n + k)), 2 * rows * n * k,
             [&] { ops.linear(out.view, x.view, w); });
    }
  }
  const LinearWeight head = weight(ops, 128256, 4096);
  const Matrix x(ops, DType::bf16, 1024, 4096), logits(ops, DType::f32, 1024, 128256);
  for (const int64_t m : {256, 1024})
    report(concat("linear lm_head M ", m), 2.0 * 128256 * 4096, 2.0 * static_cast<double>(m) * 128256 * 4096,
           [&] { ops.linear(logits.view.top(m), x.view.top(m), head); });
}

StepBatch batch_of(int64_t n_seqs, int32_t n_new, int32_t length) {
  StepBatch b;
  b.q_offsets = b.page_offsets = {0};
  for (int64_t s = 0; s < n_seqs; ++s) {
    for (int32_t p = length - n_new; p < length; ++p) b.positions.push_back(p);
    b.kv_lengths.push_back(length);
    b.q_offsets.push_back(static_cast<int32_t>(b.positions.size()));
    for (int32_t p = 0; p < length; p += kPageSize) b.pages.push_back(static_cast<PageId>(b.pages.size()));
    b.page_offsets.push_back(static_cast<int32_t>(b.pages.size()));
    b.samples.push_back({.row = static_cast<int32_t>(b.positions.size()) - 1, .slot = static_cast<int32_t>(s), .request = s});
  }
  b.token_ids.assign(b.positions.size(), 1);
  return b;
}

void measure_attention(Ops& ops) {
  const HeadShape heads{.n_heads = 32, .n_kv_heads = 8, .head_dim = 128};
  struct Case {
    const char* name;
    int64_t n_seqs;
    int32_t n_new, length;
  };
  for (const Case& c : {Case{"decode 256 x 1024", 256, 1, 1024},
                        {"decode 64 x 4096", 64, 1, 4096},
                        {"decode 1024 x 300", 1024, 1, 300},
                        {"prefill 8 x 1024", 8, 1024, 1024},
                        {"prefill 1 x 8192", 1, 8192, 8192},
                        {"prefill 40 x 200", 40, 200, 200}}) {
    const StepBatch b = batch_of(c.n_seqs, c.n_new, c.length);
    const Matrix qkv(ops, DType::bf16, b.n_tokens(), heads.qkv_cols()), out(ops, DType::bf16, b.n_tokens(), 4096);
    const Matrix rope(ops, DType::f32, 8192, 128);
    const size_t page_bytes = ops.kv_page_bytes(DType::bf16, 8, 128);
    const Buffer cache = ops.allocate(page_bytes * b.pages.size());
    ops.upload(cache.matrix(DType::bf16, static_cast<int64_t>(cache.bytes() / 256), 128),
               random_values(static_cast<int64_t>(cache.bytes() / 2)).data());
    ops.upload(qkv.view, random_values(qkv.view.rows * qkv.view.cols).data());
    const KvPages kv{cache.data(), DType::bf16, static_cast<int64_t>(b.pages.size()), 8, 128};
    const DeviceBatch batch = ops.upload_batch(b);
    const double length = c.length, n_new = c.n_new, n = static_cast<double>(c.n_seqs);
    const double pairs = n * (n_new * length - n_new * (n_new - 1) / 2);  // (query, key) per head
    report(concat("attention ", c.name), n * length * 8 * 128 * 4, 4 * pairs * 32 * 128,
           [&] { ops.attention(out.view, qkv.view, heads, kv, 0.088f, 0, batch); });
    if (c.n_new == 1 || c.n_seqs == 1)
      report(concat("rope_store_kv ", b.n_tokens(), " tokens"), static_cast<double>(b.n_tokens()) * 6144 * 4, 0,
             [&] { ops.rope_store_kv(qkv.view, {}, {}, 1e-5f, rope.view, heads, kv, batch); });
  }
}

void measure_rows(Ops& ops) {
  for (const int64_t m : {256, 1024, 8192}) {
    const auto rows = static_cast<double>(m);
    const Matrix x(ops, DType::bf16, m, 4096), delta(ops, DType::bf16, m, 4096), out(ops, DType::bf16, m, 4096);
    const Matrix norm(ops, DType::f32, 1, 4096), gate_up(ops, DType::bf16, m, 28672), act(ops, DType::bf16, m, 14336);
    report(concat("add_rms_norm M ", m), rows * 4096 * 8, 0,
           [&] { ops.add_rms_norm(out.view, x.view, delta.view, norm.view, 1e-5f); });
    report(concat("silu_mul M ", m), rows * 14336 * 6, 0, [&] { ops.silu_mul(act.view, gate_up.view); });
  }
}

void measure_sampling(Ops& ops) {
  constexpr int64_t kVocab = 128256;
  std::vector<float> values(256 * kVocab);
  uint32_t state = 3;
  for (float& v : values) v = static_cast<float>(static_cast<int32_t>(state = state * 1664525 + 1013904223)) * 0x1p-29f;
  const Matrix logits(ops, DType::f32, 256, kVocab);
  ops.upload(logits.view, values.data());
  int64_t step = 0;
  for (const char* kind : {"greedy", "temperature 1", "top_p 0.9", "top_k 50", "greedy, 5 logprobs"}) {
    StepBatch b = batch_of(256, 1, 16);
    for (SampleRow& row : b.samples) {
      const std::string k = kind;
      row.temperature = k[0] == 'g' ? 0 : 1;
      if (k == "top_p 0.9") row.top_p = 0.9f;
      if (k == "top_k 50") row.top_k = 50;
      if (k == "greedy, 5 logprobs") row.n_logprobs = 5;
    }
    report(
        concat("sample 256 rows, ", kind), 256.0 * kVocab * 4, 0,
        [&] {
          b.step = step++;
          const DeviceBatch batch = ops.upload_batch(b);
          ops.sample(logits.view, batch);
          ops.collect(b.step);
        },
        5);
  }
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  using namespace lockstep;
  if (n_gpus() == 0) return std::puts("no GPU"), 77;
  wanted.assign(argv + 1, argv + argc);
  const auto ops = make_cuda_ops({.device = 0, .n_slots = 1024});
  std::printf("%s\n", ops->kernel_class().c_str());
  measure_peak(*ops);
  measure_linear(*ops);
  measure_attention(*ops);
  measure_rows(*ops);
  measure_sampling(*ops);
}
