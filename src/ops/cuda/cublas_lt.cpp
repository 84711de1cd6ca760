#include "ops/cuda/cublas_lt.h"

namespace lockstep {

namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;

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

struct Description {
  explicit Description(const Product& p)
      : w(DType::bf16, p.n, p.k, p.k), x(DType::bf16, p.m, p.k, p.x_stride), out(p.out_type, p.m, p.n, p.out_stride) {}
  Operation operation;
  Layout w, x, out;
};

}  // namespace

CublasLt::CublasLt() {
  check_cublas(cublasLtCreate(&handle_), "starting cuBLASLt");
  workspace_ = allocate_on_gpu(kWorkspaceBytes);
}

CublasLt::~CublasLt() { cublasLtDestroy(handle_); }

std::string CublasLt::version() {
  const size_t v = cublasLtGetVersion();
  return concat(v / 10000, ".", v / 100 % 100, ".", v % 100);
}

void CublasLt::multiply(const Product& p, const cublasLtMatmulAlgo_t& algorithm, cudaStream_t stream) {
  Description d(p);
  const float one = 1, zero = 0;
  check_cublas(cublasLtMatmul(handle_, d.operation.get(), &one, p.w, d.w.get(), p.x, d.x.get(), &zero, p.out, d.out.get(),
                              p.out, d.out.get(), &algorithm, workspace_.data(), kWorkspaceBytes, stream),
               "a matrix product");
}

std::vector<cublasLtMatmulAlgo_t> CublasLt::candidates(const Product& p, int most) {
  Description d(p);
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
  check_cublas(cublasLtMatmulAlgoGetHeuristic(handle_, d.operation.get(), d.w.get(), d.x.get(), d.out.get(), d.out.get(),
                                              &preference, most, found.data(), &n),
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

}  // namespace lockstep
