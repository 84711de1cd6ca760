// What GPUs there are, without taking one.
#pragma once

#include <cstdint>

namespace lockstep {

int n_gpus();  // that this process may see; 0 without a driver

struct GpuMemory {
  uint64_t free = 0, total = 0;  // bytes, of the GPU this thread has chosen
};
GpuMemory gpu_memory();

}  // namespace lockstep
