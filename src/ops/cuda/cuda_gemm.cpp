#include "ops/cuda/cuda_gemm.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "base/log.h"
#include "kernels/rows.h"
#include "ops/cuda/cuda_device.h"

namespace lockstep {

namespace {

constexpr size_t kScratchBytes = size_t{384} << 20;  // of trials: x, two results
constexpr size_t kRoomyBytes = size_t{1} << 30;      // while weights load
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
  check(static_cast<size_t>(out - scratch_.data()) + static_cast<size_t>(p.m * p.n) * 4 <= scratch_.bytes(), "k of ", p.k);
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

// What lasts under the GPU's power limit: the clock follows what a kernel draws within about 50 ms, so one that is faster for a
// moment may end slower. The weights follow one another, so that none stays in the cache. Infinite if the trials are cut off.
double CudaGemm::lasting_milliseconds(const Product& p, const Candidate& candidate, int64_t n_weights) {
  constexpr double kBatchMs = 10;
  constexpr int kSettling = 5, kCounted = 5;  // batches
  const auto n = static_cast<int>(kBatchMs / candidate.ms) + 1;
  double ms = 0;
  for (int batch = 0; batch < kSettling + kCounted; ++batch) {
    if (enough_) return std::numeric_limits<double>::infinity();
    begin_.record(trials_);
    for (int i = 0; i < n; ++i) {
      Product one = p;
      one.w = static_cast<const std::byte*>(p.w) + i % n_weights * p.n * p.k * 2;
      multiply(one, candidate.algorithm);
    }
    end_.record(trials_);
    end_.wait();
    if (batch >= kSettling) ms += 1e3 * end_.seconds_since(begin_);
  }
  return ms / (kCounted * n);
}

// x and the results of a trial: a part of scratch_ each, x random. M is halved until they fit.
CudaGemm::Trial CudaGemm::prepare(Product p) {
  const auto element = static_cast<int64_t>(size_of(p.out_type));
  const auto aligned = [](int64_t bytes) { return (bytes + 255) / 256 * 256; };
  const auto n_bytes = [&](int64_t m) {
    return aligned(m * p.k * 2) + aligned(std::min(m, kReferenceRows) * p.n * element) + m * p.n * element;
  };
  while (p.m > 1 && static_cast<size_t>(n_bytes(p.m)) > scratch_.bytes()) p.m /= 2;
  p.x_stride = p.k, p.out_stride = p.n;
  Product few = p;
  few.m = std::min(p.m, kReferenceRows);
  std::byte* x = scratch_.data();
  p.x = few.x = x;
  few.out = x + aligned(p.m * p.k * 2);
  p.out = static_cast<std::byte*>(few.out) + aligned(few.m * p.n * element);
  const cublasLtMatmulAlgo_t reference = reference_for(p);  // before x is filled: it uses scratch_, too
  check_cuda(kernels::fill_random(reinterpret_cast<__nv_bfloat16*>(x), static_cast<size_t>(p.m * p.k), 1, trials_),
             "filling a trial");
  return {p, few, static_cast<size_t>(few.m * p.n * element), reference};
}

bool CudaGemm::gives_the_bytes(const Trial& trial, const cublasLtMatmulAlgo_t& algorithm) {
  check_cuda(cudaMemsetAsync(trial.product.out, 0xFF, trial.bytes, trials_), "comparing products");
  multiply(trial.product, algorithm);
  check_cuda(cudaMemsetAsync(flag_.data(), 0, sizeof(int), trials_), "comparing products");
  check_cuda(kernels::compare(trial.few.out, trial.product.out, trial.bytes, reinterpret_cast<int*>(flag_.data()), trials_),
             "comparing products");
  return !flag_is_set();
}

// The fastest that are admitted, at most `most` of them and none much slower than the first.
std::vector<CudaGemm::Candidate> CudaGemm::choose(const Product& wanted, size_t most) {
  constexpr double kNear = 1.08;
  const Trial trial = prepare(wanted);
  multiply(trial.few, trial.reference);
  std::vector<Candidate> timed, admitted;
  for (const auto& algorithm : blas_.candidates(trial.product, kCandidates))
    timed.push_back({milliseconds(trial.product, algorithm), static_cast<int>(timed.size()), algorithm});
  std::stable_sort(timed.begin(), timed.end(), [](const auto& a, const auto& b) { return a.ms < b.ms; });
  for (const Candidate& candidate : timed) {
    if (!admitted.empty() && (admitted.size() == most || candidate.ms > kNear * admitted.front().ms)) break;
    if (gives_the_bytes(trial, candidate.algorithm)) admitted.push_back(candidate);
  }
  std::erase_if(admitted, [&](const Candidate& c) { return !sums_ones(trial.product, c.algorithm); });
  if (admitted.empty()) admitted.push_back({0, -1, trial.reference});
  return admitted;
}

// What an earlier run found to be the best, if it is admitted in this one.
bool CudaGemm::choose_known(const Product& wanted, const ProductSize& size) {
  const auto known = verdicts_.find(size);
  if (known == verdicts_.end()) return false;
  const Trial trial = prepare(wanted);
  multiply(trial.few, trial.reference);
  const auto guesses = blas_.candidates(trial.product, kCandidates);
  const auto number = static_cast<size_t>(known->second);
  if (number >= guesses.size() || !gives_the_bytes(trial, guesses[number]) || !sums_ones(trial.product, guesses[number])) {
    verdicts_.erase(known);
    return false;
  }
  chosen_[size] = guesses[number];
  return true;
}

// First the fastest of each size: the most rows, which the first prompts come in, then upwards, as sequences join. Then, for
// the sizes that most of a run's time goes to, which of the nearly fastest lasts.
void CudaGemm::try_all(std::vector<LinearShape> shapes) {
  const auto work = [](const LinearShape& s) { return s.most_rows * s.n_out * s.k; };
  std::stable_sort(shapes.begin(), shapes.end(), [&](const auto& a, const auto& b) { return work(a) > work(b); });
  int64_t most = 0, largest = 0;
  for (const LinearShape& s : shapes) {
    most = std::max(most, bucket_of(s.most_rows));
    largest = std::max(largest, s.n_out * s.k);
  }
  const size_t bytes = static_cast<size_t>(largest) * 2;
  if (gpu_memory().free / 4 < bytes + kRoomyBytes) return;  // needed for the weights themselves
  const Buffer weight = allocate_on_gpu(bytes);
  check_cuda(kernels::fill_random(reinterpret_cast<__nv_bfloat16*>(weight.data()), static_cast<size_t>(largest), 2, trials_),
             "filling a trial");
  Buffer roomy = allocate_on_gpu(kRoomyBytes);
  std::swap(scratch_, roomy);

  const auto product_of = [&](const ProductSize& size) {
    return Product{.out_type = size.out, .w = weight.data(), .m = size.m, .n = size.n_out, .k = size.k};
  };
  const auto settle = [&](const ProductSize& size, const Candidate& candidate) {
    chosen_[size] = candidate.algorithm;
    if (candidate.number < 0) return;
    verdicts_[size] = candidate.number;
    has_new_verdicts_ = true;
  };
  std::vector<std::pair<ProductSize, std::vector<Candidate>>> rivals;
  std::vector<int64_t> sizes{most};
  for (int64_t m = bucket_of(1); m < most; m = bucket_of(m + 1)) sizes.push_back(m);
  for (const int64_t m : sizes) {
    for (const LinearShape& s : shapes) {
      const ProductSize size{s.n_out, s.k, s.out, m};
      if (enough_ || m > bucket_of(s.most_rows) || chosen_.contains(size) || choose_known(product_of(size), size)) continue;
      const bool weighs = m == most || (m >= 512 && m <= 1024);
      std::vector<Candidate> best = choose(product_of(size), weighs ? 4 : 1);
      if (best.size() == 1) {
        settle(size, best.front());
      } else {
        chosen_[size] = best.front().algorithm;
        rivals.emplace_back(size, std::move(best));
      }
    }
  }
  std::stable_sort(rivals.begin(), rivals.end(), [&](const auto& a, const auto& b) {
    const auto rank = [&](const ProductSize& s) { return s.n_out * s.k * (s.m == most ? 1000 : 1); };
    return rank(a.first) > rank(b.first);
  });
  for (const auto& [size, candidates] : rivals) {
    const Trial trial = prepare(product_of(size));
    std::vector<double> ms;
    for (const Candidate& candidate : candidates)
      ms.push_back(lasting_milliseconds(trial.product, candidate, largest / (size.n_out * size.k)));
    if (enough_) break;
    settle(size, candidates[static_cast<size_t>(std::min_element(ms.begin(), ms.end()) - ms.begin())]);
  }
  std::swap(scratch_, roomy);
}

void CudaGemm::begin_trials(std::vector<LinearShape> shapes) {
  std::erase_if(shapes, [](const LinearShape& s) { return s.n_out == 0 || s.most_rows == 0; });
  if (shapes.empty() || thread_.joinable()) return;
  int driver = 0;
  check_cuda(cudaDriverGetVersion(&driver), "reading the driver's version");
  verdicts_path_ = verdicts_path(concat(gpu_name(device_), "-cublasLt-", CublasLt::version(), "-driver-", driver));
  verdicts_ = read_verdicts(verdicts_path_);
  log_debug("products: ", verdicts_.size(), " verdicts in ", verdicts_path_);
  has_new_verdicts_ = false, enough_ = false;
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
  log_debug("products: ", chosen_.size(), " sizes have their algorithms, ", verdicts_.size(), " for good");
  if (fault_) std::rethrow_exception(std::exchange(fault_, nullptr));
  if (has_new_verdicts_) write_verdicts(verdicts_path_, verdicts_);
}

void CudaGemm::run(TensorView out, TensorView x, const LinearWeight& weight) {
  if (x.rows == 0) return;
  end_trials();
  const Product product{.out = out.data,
                        .out_stride = out.row_stride,
                        .out_type = out.dtype,
                        .x = x.data,
                        .x_stride = x.row_stride,
                        .w = weight.data.data(),
                        .m = x.rows,
                        .n = weight.n_out,
                        .k = weight.k};
  const ProductSize size{product.n, product.k, product.out_type, bucket_of(product.m)};
  auto chosen = chosen_.find(size);
  if (chosen == chosen_.end()) {
    log_debug("products: ", product.m, " x ", product.k, " -> ", product.n, " has no algorithm yet");
    check_cuda(cudaStreamSynchronize(stream_), "the work before a trial");  // which would slow it
    Product trial = product;
    trial.m = bucket_of(product.m);
    if (!choose_known(trial, size)) chosen_[size] = choose(trial, 1).front().algorithm;
    chosen = chosen_.find(size);
  }
  blas_.multiply(product, chosen->second, stream_);
}

}  // namespace lockstep
