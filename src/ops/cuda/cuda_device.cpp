#include "ops/cuda/cuda_device.h"

#include <cstdlib>
#include <string_view>

#include "ops/cuda/cuda_check.h"

namespace lockstep {

int n_gpus() {
  int n = 0;
  return cudaGetDeviceCount(&n) == cudaSuccess ? n : 0;
}

std::string gpu_name(int gpu) {
  cudaDeviceProp properties;
  check_cuda(cudaGetDeviceProperties(&properties, gpu), "reading the GPU's properties");
  return properties.name;
}

std::string gpu_bus_id(int gpu) {
  char text[32] = "";
  if (cudaDeviceGetPCIBusId(text, sizeof text, gpu) == cudaSuccess) return text;
  (void)cudaGetLastError();  // forgotten: nobody's work depends on it
  return "";
}

std::vector<std::string> gpu_names() {
  const char* shown = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::string part = shown != nullptr && std::string_view(shown).starts_with("MIG") ? shown : "";  // one of a GPU's parts
  std::vector<std::string> names;
  for (int device = 0; device < n_gpus(); ++device) {
    cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) {  // taking it will say why
      names.push_back(concat("GPU ", device));
      continue;
    }
    names.push_back(concat(properties.pciDomainID, ':', properties.pciBusID, ':', properties.pciDeviceID, ' ',
                           std::string_view(properties.uuid.bytes, sizeof properties.uuid.bytes), part));
  }
  return names;
}

GpuMemory gpu_memory() {
  size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "asking for free memory");
  return {free, total};
}

}  // namespace lockstep
