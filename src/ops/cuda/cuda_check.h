// Errors of the CUDA runtime and cuBLASLt as Errors that say where, and on which GPU.
//   check_cuda(cudaMemcpyAsync(...), "copying the batch");
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include "base/error.h"

namespace lockstep {

// A sticky error means that the GPU's state is lost: hardware. Memory that is not there: environment.
template <class What>
void check_cuda(Located<cudaError_t> result, const What& what) {
  if (result.value == cudaSuccess) [[likely]]
    return;
  int device = -1;
  cudaGetDevice(&device);
  const bool is_memory = result.value == cudaErrorMemoryAllocation;
  throw Error(is_memory ? ExitCode::environment : ExitCode::hardware,
              concat("GPU ", device, ": ", what, ": ", cudaGetErrorString(result.value)), result.where);
}

template <class What>
void check_cublas(Located<cublasStatus_t> result, const What& what) {
  if (result.value != CUBLAS_STATUS_SUCCESS) [[unlikely]]
    throw Error(ExitCode::hardware, concat(what, ": ", cublasLtGetStatusString(result.value)), result.where);
}

}  // namespace lockstep
