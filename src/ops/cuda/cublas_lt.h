// cuBLASLt as this project calls it: row-major products of bf16, f32 sums, without split K.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ops/cuda/cuda_memory.h"

namespace lockstep {

struct Product {  // out [m, n] = x [m, k] w [n, k]^T, in pointers and strides (elements); x and w bf16, out bf16 or f32
  void* out;
  int64_t out_stride;
  DType out_type;
  const void* x;
  int64_t x_stride;
  const void* w;
  int64_t m, n, k;
};

class CublasLt {
 public:
  CublasLt();
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  // One call at a time: all use the same workspace.
  void multiply(const Product& product, const cublasLtMatmulAlgo_t& algorithm, cudaStream_t stream);
  // The library's best guesses without split K, best first; Error where there are none.
  std::vector<cublasLtMatmulAlgo_t> candidates(const Product& product, int most);
  static std::string version();

 private:
  cublasLtHandle_t handle_ = nullptr;
  Buffer workspace_;
};

}  // namespace lockstep
