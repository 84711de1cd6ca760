// Dense products by cuBLASLt whose rows don't see each other: only algorithms that don't split K, and of those only ones that
// give the bytes of the shape's reference algorithm (M 256) on random rows, and exact sums of ones. Of the admitted the fastest
// is taken, for each shape and some sizes of M (bucket_of), under the GPU's power limit where there is time to find out:
// whichever that is, the bytes are the same. Admitted in every run, so that none is older than the library or driver that it is
// about: by a thread of its own while weights load, and for what it didn't reach, when a size first comes. Which was the
// fastest is kept between runs (gemm_verdicts.h).
//   CudaGemm gemm(device, stream);  gemm.run(out, x, weight);      out [M, n_out] = x [M, k] W^T
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <map>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "ops/cuda/cublas_lt.h"
#include "ops/cuda/cuda_memory.h"
#include "ops/cuda/cuda_stream.h"
#include "ops/cuda/gemm_verdicts.h"
#include "ops/ops.h"

namespace lockstep {

class CudaGemm {
 public:
  CudaGemm(int device, cudaStream_t stream);  // products go to `stream`, trials to one of its own
  ~CudaGemm();

  // bf16 in, bf16 or f32 out; bias is not added. k and n_out multiples of 8.
  void run(TensorView out, TensorView x, const LinearWeight& weight);

  // Trials of the shapes, of 1 to their most rows, until end_trials, or all are done. They take memory for the largest weight,
  // and are left out where three times as much wouldn't remain.
  void begin_trials(std::vector<LinearShape> shapes);
  void end_trials();  // Error of the trials, if there was one

 private:
  using Shape = std::tuple<int64_t, int64_t, DType>;  // n_out, k, type of out

  struct Candidate {
    double ms;
    int number;  // among the library's guesses
    cublasLtMatmulAlgo_t algorithm;
  };
  struct Trial {
    Product product, few;  // few: the first rows, by the reference algorithm
    size_t bytes;          // of few's result
    cublasLtMatmulAlgo_t reference;
  };

  void try_all(std::vector<LinearShape> shapes);
  void multiply(const Product& product, const cublasLtMatmulAlgo_t& algorithm) { blas_.multiply(product, algorithm, trials_); }
  bool sums_ones(const Product& product, const cublasLtMatmulAlgo_t& algorithm);
  const cublasLtMatmulAlgo_t& reference_for(const Product& product);
  Trial prepare(Product product);
  std::vector<Candidate> choose(const Product& wanted, size_t most);
  bool choose_known(const Product& wanted, const ProductSize& size);
  bool gives_the_bytes(const Trial& trial, const cublasLtMatmulAlgo_t& algorithm);
  double milliseconds(const Product& product, const cublasLtMatmulAlgo_t& algorithm);
  double lasting_milliseconds(const Product& product, const Candidate& candidate, int64_t n_weights);
  bool flag_is_set();

  int device_;
  cudaStream_t stream_;
  Stream trials_;
  CublasLt blas_;
  Buffer scratch_, flag_;
  Event begin_{Event::Use::time}, middle_{Event::Use::time}, end_{Event::Use::time};
  std::map<Shape, cublasLtMatmulAlgo_t> references_;
  std::map<ProductSize, cublasLtMatmulAlgo_t> chosen_;
  std::string verdicts_path_;
  Verdicts verdicts_;
  bool has_new_verdicts_ = false;
  std::atomic<bool> enough_ = false;
  std::exception_ptr fault_;
  std::thread thread_;  // has all of the above to itself while it runs
};

}  // namespace lockstep
