// Errors of the CUDA runtime in comm/cuda as Errors that say where.
#pragma once

#include <cuda_runtime.h>

#include "base/error.h"

namespace lockstep {

template <class What>
void check_cuda_call(Located<cudaError_t> result, const What& what) {
  if (result.value == cudaSuccess) [[likely]]
    return;
  throw Error(ExitCode::hardware, concat(what, ": ", cudaGetErrorString(result.value)), result.where);
}

}  // namespace lockstep
