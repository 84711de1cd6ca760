// What launchers ask of the GPU that they launch on.
#pragma once

#include <cuda_runtime.h>

namespace lockstep::kernels {

inline int of_this_gpu(cudaDeviceAttr attribute) {
  int device = 0, value = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&value, attribute, device);
  return value;
}

}  // namespace lockstep::kernels
