#include "ops/cuda/cuda_device.h"

#include "ops/cuda/cuda_check.h"

namespace lockstep {

int n_gpus() {
  int n = 0;
  return cudaGetDeviceCount(&n) == cudaSuccess ? n : 0;
}

std::string gpu_bus_id(int gpu) {
  char text[32] = "";
  if (cudaDeviceGetPCIBusId(text, sizeof text, gpu) == cudaSuccess) return text;
  (void)cudaGetLastError();  // forgotten: nobody's work depends on it
  return "";
}

GpuMemory gpu_memory() {
  size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "asking for free memory");
  return {free, total};
}

}  // namespace lockstep
