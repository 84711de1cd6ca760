// The CUDA kernels against the double reference on a GPU; skipped visibly where there is none.
#include "kernels/rms_norm.h"

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

namespace lockstep::kernels {
namespace {

bool has_gpu() {
  int n = 0;
  return cudaGetDeviceCount(&n) == cudaSuccess && n > 0;
}

#define SKIP_WITHOUT_GPU() \
  if (!has_gpu()) GTEST_SKIP() << "no GPU"

template <class T>
struct DeviceArray {
  explicit DeviceArray(const std::vector<T>& host) : n(host.size()) {
    EXPECT_EQ(cudaMalloc(&data, n * sizeof(T)), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(data, host.data(), n * sizeof(T), cudaMemcpyHostToDevice), cudaSuccess);
  }
  ~DeviceArray() { cudaFree(data); }
  std::vector<T> host() const {
    std::vector<T> values(n);
    EXPECT_EQ(cudaMemcpy(values.data(), data, n * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
    return values;
  }
  size_t n;
  T* data = nullptr;
};

std::vector<__nv_bfloat16> random_bf16(size_t n, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0, 2);
  std::vector<__nv_bfloat16> values(n);
  for (auto& v : values) v = __float2bfloat16(normal(engine));
  return values;
}

struct Case {
  int rows, cols;
};
class RmsNorm : public ::testing::TestWithParam<Case> {};

TEST_P(RmsNorm, EqualsTheReference) {
  SKIP_WITHOUT_GPU();
  const auto [rows, cols] = GetParam();
  const auto x = random_bf16(static_cast<size_t>(rows) * cols, 1), delta = random_bf16(static_cast<size_t>(rows) * cols, 2);
  std::vector<float> weight(cols);
  for (int c = 0; c < cols; ++c) weight[c] = 0.5f + 0.001f * static_cast<float>(c % 700);
  const float eps = 1e-5f;
  for (const bool with_delta : {false, true}) {
    DeviceArray<__nv_bfloat16> d_x(x), d_delta(delta), d_out(random_bf16(x.size(), 3));
    DeviceArray<float> d_weight(weight);
    ASSERT_EQ(with_delta
                  ? add_rms_norm(d_out.data, cols, d_x.data, cols, d_delta.data, cols, d_weight.data, rows, cols, eps, nullptr)
                  : rms_norm(d_out.data, cols, d_x.data, cols, d_weight.data, rows, cols, eps, nullptr),
              cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    const auto out = d_out.host(), residual = d_x.host();
    double worst = 0;
    for (int r = 0; r < rows; ++r) {
      std::vector<double> row(cols);
      double sum = 0;
      for (int c = 0; c < cols; ++c) {
        const size_t i = static_cast<size_t>(r) * cols + c;
        row[c] = __bfloat162float(x[i]);
        if (with_delta) row[c] = __bfloat162float(__float2bfloat16(__bfloat162float(x[i]) + __bfloat162float(delta[i])));
        ASSERT_EQ(__bfloat162float(residual[i]), static_cast<float>(row[c])) << r << "," << c;
        sum += row[c] * row[c];
      }
      const double scale = 1 / std::sqrt(sum / cols + eps);
      for (int c = 0; c < cols; ++c) {
        const double want = row[c] * scale * weight[c];
        const double tolerance =
            2 * 0x1p-8 * std::abs(want) + 1e-30;  // two roundings to bf16, half a unit of 2^-8 each, and f32 noise
        worst = std::max(worst, std::abs(__bfloat162float(out[static_cast<size_t>(r) * cols + c]) - want) / tolerance);
      }
    }
    EXPECT_LT(worst, 1) << rows << " x " << cols << ": share of tolerance";
  }
}
INSTANTIATE_TEST_SUITE_P(Shapes, RmsNorm,
                         ::testing::Values(Case{1, 8}, Case{3, 64}, Case{31, 576}, Case{33, 2048}, Case{7, 4096},
                                           Case{2, 16384}));

TEST(RmsNormBits, ARowDoesNotSeeTheOthers) {
  SKIP_WITHOUT_GPU();
  const int cols = 4096, rows = 129;
  const auto x = random_bf16(static_cast<size_t>(rows) * cols, 4);
  DeviceArray<__nv_bfloat16> d_x(x), all(x), one(x);
  DeviceArray<float> weight(std::vector<float>(cols, 1.5f));
  ASSERT_EQ(rms_norm(all.data, cols, d_x.data, cols, weight.data, rows, cols, 1e-5f, nullptr), cudaSuccess);
  for (int r = 0; r < rows; ++r)
    ASSERT_EQ(rms_norm(one.data + r * cols, cols, d_x.data + r * cols, cols, weight.data, 1, cols, 1e-5f, nullptr),
              cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  const auto a = all.host(), b = one.host();
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])), 0);
}

// Large rows, far beyond the L2 cache: the share of a device copy's rate that the kernel reaches, printed for bench/results.
TEST(RmsNormRate, Prints) {
  SKIP_WITHOUT_GPU();
  const int cols = 4096, rows = 65536;  // 512 MiB
  const size_t bytes = static_cast<size_t>(rows) * cols * 2;
  __nv_bfloat16 *x = nullptr, *out = nullptr;
  float* weight = nullptr;
  ASSERT_EQ(cudaMalloc(&x, bytes), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&out, bytes), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&weight, cols * 4), cudaSuccess);
  ASSERT_EQ(cudaMemset(x, 0x3f, bytes), cudaSuccess);
  ASSERT_EQ(cudaMemset(weight, 0x3f, cols * 4), cudaSuccess);
  cudaEvent_t begin, end;
  cudaEventCreate(&begin), cudaEventCreate(&end);
  const auto rate = [&](const auto& call) {
    for (int i = 0; i < 3; ++i) call();
    cudaEventRecord(begin);
    for (int i = 0; i < 20; ++i) call();
    cudaEventRecord(end);
    cudaEventSynchronize(end);
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    return 20 * 2.0 * static_cast<double>(bytes) / ms / 1e9;  // TB/s, read and written
  };
  const double copy = rate([&] { cudaMemcpyAsync(out, x, bytes, cudaMemcpyDeviceToDevice); });
  const double norm = rate([&] { EXPECT_EQ(rms_norm(out, cols, x, cols, weight, rows, cols, 1e-5f, nullptr), cudaSuccess); });
  std::printf("rms_norm %d x %d: %.2f TB/s, copy %.2f TB/s, share %.2f\n", rows, cols, norm, copy, norm / copy);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  cudaFree(x), cudaFree(out), cudaFree(weight);
  cudaEventDestroy(begin), cudaEventDestroy(end);
}

}  // namespace
}  // namespace lockstep::kernels
