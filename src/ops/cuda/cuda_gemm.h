// Dense products by cuBLASLt whose rows don't see each other: only algorithms that don't split K, and of those only ones that
// give the bytes of the shape's reference algorithm (M 256) on random rows, and exact sums of ones. Of the admitted the fastest
// is taken, for each shape and some sizes of M (bucket_of): whichever that is, the bytes are the same. Found out when a shape
// first comes, so that no verdict can be older than the library or driver that it is about.
//   CudaGemm gemm(stream);  gemm.run(out, x, weight);      out [M, n_out] = x [M, k] W^T
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "ops/cuda/cuda_memory.h"
#include "ops/ops.h"

namespace lockstep {

class CudaGemm {
 public:
  explicit CudaGemm(cudaStream_t stream);
  ~CudaGemm();
  CudaGemm(const CudaGemm&) = delete;
  CudaGemm& operator=(const CudaGemm&) = delete;

  // bf16 in, bf16 or f32 out; bias is not added. k and n_out multiples of 8.
  void run(TensorView out, TensorView x, const LinearWeight& weight);

  std::string library_version() const;

 private:
  struct Product {  // out [m, n] = x [m, k] w [n, k]^T, in pointers and strides
    void* out;
    int64_t out_stride;
    DType out_type;
    const void* x;
    int64_t x_stride;
    const void* w;
    int64_t m, n, k;
  };
  using Shape = std::tuple<int64_t, int64_t, DType>;  // n_out, k, type of out
  using Size = std::tuple<int64_t, int64_t, DType, int64_t>;

  std::vector<cublasLtMatmulAlgo_t> candidates(const Product& product, int most);
  void multiply(const Product& product, const cublasLtMatmulAlgo_t& algorithm);
  bool sums_ones(const Product& product, const cublasLtMatmulAlgo_t& algorithm);
  const cublasLtMatmulAlgo_t& algorithm_for(const Product& product);
  const cublasLtMatmulAlgo_t& reference_for(const Product& product);
  cublasLtMatmulAlgo_t choose(Product trial);
  static int64_t bucket_of(int64_t m);
  double milliseconds(const Product& product, const cublasLtMatmulAlgo_t& algorithm);
  bool flag_is_set();

  cudaStream_t stream_;
  cublasLtHandle_t handle_ = nullptr;
  Buffer workspace_, scratch_, flag_;
  std::map<Shape, cublasLtMatmulAlgo_t> references_;
  std::map<Size, cublasLtMatmulAlgo_t> chosen_;
};

}  // namespace lockstep
