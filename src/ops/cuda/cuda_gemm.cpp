#include "ops/cuda/cuda_gemm.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/log.h"
#include "kernels/rows.h"
#include "ops/cuda/cuda_device.h"

namespace lockstep {

namespace {

constexpr size_t kScratchBytes = size_t{384} << 20;  // of trials: x, two results
constexpr int64_t kReferenceRows = 256;
constexpr int64_t kMostTrialRows = 8192;
constexpr int kCandidates = 16;

// Products go in tiles of about 128 rows: a number of rows has the algorithm of the next of these, so that what is fast for
// 1024 rows isn't taken for 600.
int64_t bucket_of(int64_t m) {
  const int64_t unit = m <= 64 ? 16 : m <= 512 ? 64 : m <= 1024 ? 128 : m <= 2048 ? 256 : 2048;
  return std::min((m + unit - 1) / unit * unit, kMostTrialRows);
}

}  // namespace

CudaGemm::CudaGemm(int device, cudaStream_t stream) : device_(device), stream_(stream), trials_(device) {
  scratch_ = allocate_on_gpu(kScratchBytes);
  flag_ = allocate_on_gpu(sizeof(int));
}

CudaGemm::~CudaGemm() {
  enough_ = true;
  if (thread_.joinable()) thread_.join();
}

bool CudaGemm::flag_is_set() {
  int flag = 0;
  check_cuda(cudaMemcpyAsync(&flag, flag_.data(), sizeof flag, cudaMemcpyDeviceToHost, trials_), "reading a comparison");
  check_cuda(cudaStreamSynchronize(trials_), "comparing products");
  return flag != 0;
}

// Every element of a product of ones is k: an algorithm that drops or doubles a piece of K shows here.
bool CudaGemm::sums_ones(const Product& like, const cublasLtMatmulAlgo_t& algorithm) {
  Product p = like;
  p.m = std::min<int64_t>(like.m, 64), p.n = std::min<int64_t>(like.n, 256), p.x_stride = p.k, p.out_stride = p.n;
  auto* x = reinterpret_cast<__nv_bfloat16*>(scratch_.data());
  auto* w = x + p.m * p.k;
  std::byte* out = reinterpret_cast<std::byte*>(w + p.n * p.k);
  p.x = x, p.w = w, p.out = out;
  check(static_cast<size_t>(out - scratch_.data()) + static_cast<size_t>(p.m * p.n) * 4 <= kScratchBytes, "k of ", p.k);
  check_cuda(kernels::fill(x, static_cast<size_t>((p.m + p.n) * p.k), 1, trials_), "filling a trial");
  multiply(p, algorithm);
  std::vector<std::byte> host(static_cast<size_t>(p.m * p.n) * size_of(p.out_type));
  check_cuda(cudaMemcpyAsync(host.data(), out, host.size(), cudaMemcpyDeviceToHost, trials_), "reading a trial");
  check_cuda(cudaStreamSynchronize(trials_), "a trial product");
  const auto k = static_cast<float>(p.k);
  for (int64_t i = 0; i < p.m * p.n; ++i) {
    if (p.out_type == DType::f32
            ? reinterpret_cast<const float*>(host.data())[i] != k
            : reinterpret_cast<const uint16_t*>(host.data())[i] != std::bit_cast<uint16_t>(__float2bfloat16_rn(k)))
      return false;
  }
  return true;
}

const cublasLtMatmulAlgo_t& CudaGemm::reference_for(const Product& product) {
  const Shape shape{product.n, product.k, product.out_type};
  if (const auto known = references_.find(shape); known != references_.end()) return known->second;
  Product p = product;
  p.m = kReferenceRows;
  for (const auto& algorithm : blas_.candidates(p, 8))
    if (sums_ones(p, algorithm)) return references_.emplace(shape, algorithm).first->second;
  fail(ExitCode::hardware, "no algorithm of cuBLASLt sums ", product.k, " ones to ", product.k);
}

double CudaGemm::milliseconds(const Product& p, const cublasLtMatmulAlgo_t& algorithm) {
  multiply(p, algorithm);  // its first launch loads it
  begin_.record(trials_);
  multiply(p, algorithm);
  middle_.record(trials_);
  multiply(p, algorithm);
  end_.record(trials_);
  end_.wait();
  return 1e3 * std::min(middle_.seconds_since(begin_), end_.seconds_since(middle_));
}

// trial: the shape, the weight, and M; its rows and results lie in scratch_.
cublasLtMatmulAlgo_t CudaGemm::choose(Product trial) {
  const auto element = static_cast<int64_t>(size_of(trial.out_type));
  const auto n_bytes = [&](int64_t m) {
    return m * trial.k * 2 + (m + std::min(m, kReferenceRows)) * trial.n * element + 1024;
  };
  trial.x_stride = trial.k, trial.out_stride = trial.n;
  while (trial.m > 1 && static_cast<size_t>(n_bytes(trial.m)) > kScratchBytes) trial.m /= 2;
  const cublasLtMatmulAlgo_t reference = reference_for(trial);
  const int64_t n_compared = std::min(trial.m, kReferenceRows);
  const auto aligned = [](int64_t bytes) { return (bytes + 255) / 256 * 256; };
  std::byte* x = scratch_.data();
  std::byte* expected = x + aligned(trial.m * trial.k * 2);
  std::byte* got = expected + aligned(n_compared * trial.n * element);
  trial.x = x;

  trial.out = got;
  const auto prepare = [&] {  // sums_ones takes its place
    check_cuda(kernels::fill_random(reinterpret_cast<__nv_bfloat16*>(x), static_cast<size_t>(trial.m * trial.k), 1, trials_),
               "filling a trial");
    Product few = trial;
    few.m = n_compared, few.out = expected;
    multiply(few, reference);
  };
  prepare();
  std::vector<std::pair<double, cublasLtMatmulAlgo_t>> timed;
  for (const auto& algorithm : blas_.candidates(trial, kCandidates))
    timed.emplace_back(milliseconds(trial, algorithm), algorithm);
  std::stable_sort(timed.begin(), timed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [ms, algorithm] : timed) {
    check_cuda(cudaMemsetAsync(got, 0xFF, static_cast<size_t>(n_compared * trial.n * element), trials_), "comparing products");
    multiply(trial, algorithm);
    check_cuda(cudaMemsetAsync(flag_.data(), 0, sizeof(int), trials_), "comparing products");
    check_cuda(kernels::compare(expected, got, static_cast<size_t>(n_compared * trial.n * element),
                                reinterpret_cast<int*>(flag_.data()), trials_),
               "comparing products");
    if (flag_is_set()) continue;
    if (sums_ones(trial, algorithm)) return algorithm;
    prepare();
  }
  return reference;
}

// The most rows first, which the first prompts come in; then upwards, as sequences join.
void CudaGemm::try_all(const std::vector<LinearShape>& shapes) {
  int64_t largest = 0, most = 0;
  for (const LinearShape& shape : shapes)
    largest = std::max(largest, shape.n_out * shape.k), most = std::max(most, bucket_of(shape.most_rows));
  const size_t bytes = static_cast<size_t>(largest) * 2;
  if (gpu_memory().free / 4 < bytes) return;  // needed for the weights themselves
  const Buffer weight = allocate_on_gpu(bytes);
  check_cuda(kernels::fill_random(reinterpret_cast<__nv_bfloat16*>(weight.data()), static_cast<size_t>(largest), 2, trials_),
             "filling a trial");
  std::vector<int64_t> sizes{most};
  for (int64_t m = bucket_of(1); m < most; m = bucket_of(m + 1)) sizes.push_back(m);
  for (const int64_t m : sizes) {
    for (const LinearShape& s : shapes) {
      if (enough_) return;
      const Size size{s.n_out, s.k, s.out, m};
      if (m > bucket_of(s.most_rows) || chosen_.contains(size)) continue;
      chosen_.emplace(size, choose({.out_type = s.out, .w = weight.data(), .m = m, .n = s.n_out, .k = s.k}));
    }
  }
}

void CudaGemm::begin_trials(std::vector<LinearShape> shapes) {
  std::erase_if(shapes, [](const LinearShape& s) { return s.n_out == 0 || s.most_rows == 0; });
  if (shapes.empty() || thread_.joinable()) return;
  enough_ = false;
  thread_ = std::thread([this, shapes = std::move(shapes)] {
    try {
      check_cuda(cudaSetDevice(device_), "choosing the GPU");
      try_all(shapes);
    } catch (...) {
      fault_ = std::current_exception();
    }
  });
}

void CudaGemm::end_trials() {
  if (!thread_.joinable()) return;
  enough_ = true;
  thread_.join();
  log_debug("products: ", chosen_.size(), " sizes have their algorithms");
  if (fault_) std::rethrow_exception(std::exchange(fault_, nullptr));
}

void CudaGemm::run(TensorView out, TensorView x, const LinearWeight& weight) {
  if (x.rows == 0) return;
  end_trials();
  Product product{.out = out.data,
                  .out_stride = out.row_stride,
                  .out_type = out.dtype,
                  .x = x.data,
                  .x_stride = x.row_stride,
                  .w = weight.data.data(),
                  .m = x.rows,
                  .n = weight.n_out,
                  .k = weight.k};
  const Size size{product.n, product.k, product.out_type, bucket_of(product.m)};
  auto chosen = chosen_.find(size);
  if (chosen == chosen_.end()) {
    log_debug("products: ", product.m, " x ", product.k, " -> ", product.n, " has no algorithm yet");
    check_cuda(cudaStreamSynchronize(stream_), "the work before a trial");  // which would slow it
    Product trial = product;
    trial.m = bucket_of(product.m);
    chosen = chosen_.emplace(size, choose(trial)).first;
  }
  blas_.multiply(product, chosen->second, stream_);
}

}  // namespace lockstep
