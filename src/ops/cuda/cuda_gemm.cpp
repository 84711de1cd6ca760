#include "ops/cuda/cuda_gemm.h"

#include <algorithm>
#include <bit>
#include <string>

#include "kernels/rows.h"

namespace lockstep {

namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;
constexpr size_t kScratchBytes = size_t{384} << 20;  // of trials: x, two results
constexpr int64_t kReferenceRows = 256;
constexpr int64_t kMostTrialRows = 8192;
constexpr int kCandidates = 16;

cudaDataType_t type_of(DType dtype) { return dtype == DType::f32 ? CUDA_R_32F : CUDA_R_16BF; }

// A matrix as cuBLASLt sees it: column-major, so ours transposed.
class Layout {
 public:
  Layout(DType dtype, int64_t rows, int64_t cols, int64_t stride) {
    check_cublas(
        cublasLtMatrixLayoutInit(&layout_, type_of(dtype), static_cast<uint64_t>(cols), static_cast<uint64_t>(rows), stride),
        "describing a matrix");
  }
  cublasLtMatrixLayout_t get() { return &layout_; }

 private:
  cublasLtMatrixLayoutOpaque_t layout_;
};

class Operation {
 public:
  Operation() {
    check_cublas(cublasLtMatmulDescInit(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a product");
    const cublasOperation_t transposed = CUBLAS_OP_T;
    check_cublas(cublasLtMatmulDescSetAttribute(&operation_, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed),
                 "describing a product");
  }
  cublasLtMatmulDesc_t get() { return &operation_; }

 private:
  cublasLtMatmulDescOpaque_t operation_;
};

}  // namespace

CudaGemm::CudaGemm(cudaStream_t stream) : stream_(stream) {
  check_cublas(cublasLtCreate(&handle_), "starting cuBLASLt");
  workspace_ = allocate_on_gpu(kWorkspaceBytes);
  scratch_ = allocate_on_gpu(kScratchBytes);
  flag_ = allocate_on_gpu(sizeof(int));
}

CudaGemm::~CudaGemm() { cublasLtDestroy(handle_); }

std::string CudaGemm::library_version() const {
  const size_t v = cublasLtGetVersion();
  return concat(v / 10000, ".", v / 100 % 100, ".", v % 100);
}

void CudaGemm::multiply(const Product& p, const cublasLtMatmulAlgo_t& algorithm) {
  Operation operation;
  Layout w(DType::bf16, p.n, p.k, p.k), x(DType::bf16, p.m, p.k, p.x_stride), out(p.out_type, p.m, p.n, p.out_stride);
  const float one = 1, zero = 0;
  check_cublas(cublasLtMatmul(handle_, operation.get(), &one, p.w, w.get(), p.x, x.get(), &zero, p.out, out.get(), p.out,
                              out.get(), &algorithm, workspace_.data(), kWorkspaceBytes, stream_),
               "a matrix product");
}

// The library's best guesses without split K, best first.
std::vector<cublasLtMatmulAlgo_t> CudaGemm::candidates(const Product& p, int most) {
  Operation operation;
  Layout w(DType::bf16, p.n, p.k, p.k), x(DType::bf16, p.m, p.k, p.x_stride), out(p.out_type, p.m, p.n, p.out_stride);
  cublasLtMatmulPreferenceOpaque_t preference;
  const uint32_t no_reduction = CUBLASLT_REDUCTION_SCHEME_NONE;
  const size_t bytes = kWorkspaceBytes;
  check_cublas(cublasLtMatmulPreferenceInit(&preference), "asking for algorithms");
  check_cublas(cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &no_reduction,
                                                    sizeof no_reduction),
               "asking for algorithms");
  check_cublas(
      cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes),
      "asking for algorithms");
  std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<size_t>(most));
  int n = 0;
  check_cublas(cublasLtMatmulAlgoGetHeuristic(handle_, operation.get(), w.get(), x.get(), out.get(), out.get(), &preference,
                                              most, found.data(), &n),
               concat("no algorithm for ", p.m, " x ", p.k, " -> ", p.n));
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; i < n; ++i) {
    int32_t split = 1;
    size_t written = 0;
    cublasLtMatmulAlgoConfigGetAttribute(&found[static_cast<size_t>(i)].algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split,
                                         sizeof split, &written);
    if (split <= 1) algorithms.push_back(found[static_cast<size_t>(i)].algo);
  }
  check(!algorithms.empty(), "no algorithm without split K for ", p.m, " x ", p.k, " -> ", p.n);
  return algorithms;
}

bool CudaGemm::flag_is_set() {
  int flag = 0;
  check_cuda(cudaMemcpyAsync(&flag, flag_.data(), sizeof flag, cudaMemcpyDeviceToHost, stream_), "reading a comparison");
  check_cuda(cudaStreamSynchronize(stream_), "comparing products");
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
  check_cuda(kernels::fill(x, static_cast<size_t>((p.m + p.n) * p.k), 1, stream_), "filling a trial");
  multiply(p, algorithm);
  std::vector<std::byte> host(static_cast<size_t>(p.m * p.n) * size_of(p.out_type));
  check_cuda(cudaMemcpyAsync(host.data(), out, host.size(), cudaMemcpyDeviceToHost, stream_), "reading a trial");
  check_cuda(cudaStreamSynchronize(stream_), "a trial product");
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
  for (const auto& algorithm : candidates(p, 8))
    if (sums_ones(p, algorithm)) return references_.emplace(shape, algorithm).first->second;
  fail(ExitCode::hardware, "no algorithm of cuBLASLt sums ", product.k, " ones to ", product.k);
}

double CudaGemm::milliseconds(const Product& p, const cublasLtMatmulAlgo_t& algorithm) {
  cudaEvent_t begin, end;
  check_cuda(cudaEventCreate(&begin), "creating an event");
  check_cuda(cudaEventCreate(&end), "creating an event");
  multiply(p, algorithm);
  float least = 1e30f;
  for (int i = 0; i < 2; ++i) {
    cudaEventRecord(begin, stream_);
    multiply(p, algorithm);
    cudaEventRecord(end, stream_);
    check_cuda(cudaEventSynchronize(end), "timing a product");
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    least = std::min(least, ms);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return least;
}

// trial: the shape, the weight, and M; its rows and results lie in scratch_.
cublasLtMatmulAlgo_t CudaGemm::choose(Product trial) {
  const auto element = static_cast<int64_t>(size_of(trial.out_type));
  const auto n_bytes = [&](int64_t m) {
    return m * trial.k * 2 + (m + std::min(m, kReferenceRows)) * trial.n * element + 1024;
  };
  while (trial.m > 1 && static_cast<size_t>(n_bytes(trial.m)) > kScratchBytes) trial.m /= 2;
  const cublasLtMatmulAlgo_t reference = reference_for(trial);
  const int64_t n_compared = std::min(trial.m, kReferenceRows);
  const auto aligned = [](int64_t bytes) { return (bytes + 255) / 256 * 256; };
  std::byte* x = scratch_.data();
  std::byte* expected = x + aligned(trial.m * trial.k * 2);
  std::byte* got = expected + aligned(n_compared * trial.n * element);
  trial.x = x, trial.x_stride = trial.k, trial.out_stride = trial.n;

  trial.out = got;
  const auto prepare = [&] {  // sums_ones takes its place
    check_cuda(kernels::fill_random(reinterpret_cast<__nv_bfloat16*>(x), static_cast<size_t>(trial.m * trial.k), 1, stream_),
               "filling a trial");
    Product few = trial;
    few.m = n_compared, few.out = expected;
    multiply(few, reference);
  };
  prepare();
  std::vector<std::pair<double, cublasLtMatmulAlgo_t>> timed;
  for (const auto& algorithm : candidates(trial, kCandidates)) timed.emplace_back(milliseconds(trial, algorithm), algorithm);
  std::stable_sort(timed.begin(), timed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [ms, algorithm] : timed) {
    check_cuda(cudaMemsetAsync(got, 0xFF, static_cast<size_t>(n_compared * trial.n * element), stream_), "comparing products");
    multiply(trial, algorithm);
    check_cuda(cudaMemsetAsync(flag_.data(), 0, sizeof(int), stream_), "comparing products");
    check_cuda(kernels::compare(expected, got, static_cast<size_t>(n_compared * trial.n * element),
                                reinterpret_cast<int*>(flag_.data()), stream_),
               "comparing products");
    if (flag_is_set()) continue;
    if (sums_ones(trial, algorithm)) return algorithm;
    prepare();
  }
  return reference;
}

// Products go in tiles of about 128 rows: a number of rows has the algorithm of the next of these, so that what is fast for
// 1024 rows isn't taken for 600.
int64_t CudaGemm::bucket_of(int64_t m) {
  const int64_t unit = m <= 64 ? 16 : m <= 512 ? 64 : m <= 1024 ? 128 : m <= 2048 ? 256 : 2048;
  return std::min((m + unit - 1) / unit * unit, kMostTrialRows);
}

const cublasLtMatmulAlgo_t& CudaGemm::algorithm_for(const Product& product) {
  const int64_t m = bucket_of(product.m);
  const Size size{product.n, product.k, product.out_type, m};
  if (const auto known = chosen_.find(size); known != chosen_.end()) return known->second;
  Product trial = product;
  trial.m = m;
  return chosen_.emplace(size, choose(trial)).first->second;
}

void CudaGemm::run(TensorView out, TensorView x, const LinearWeight& weight) {
  if (x.rows == 0) return;
  const Product product{.out = out.data,
                        .out_stride = out.row_stride,
                        .out_type = out.dtype,
                        .x = x.data,
                        .x_stride = x.row_stride,
                        .w = weight.data.data(),
                        .m = x.rows,
                        .n = weight.n_out,
                        .k = weight.k};
  multiply(product, algorithm_for(product));
}

}  // namespace lockstep
