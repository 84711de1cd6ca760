// What GPUs there are, without taking one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

int n_gpus();  // that this process may see; 0 without a driver
// [n_gpus] what tells one from another on this machine, whatever it is numbered here: its PCI address and identifier.
std::vector<std::string> gpu_names();

std::string gpu_name(int gpu);    // "NVIDIA H200"; Error where CUDA doesn't say
std::string gpu_bus_id(int gpu);  // "0000:1b:00.0"; "" where CUDA doesn't say

struct GpuMemory {
  uint64_t free = 0, total = 0;  // bytes, of the GPU this thread has chosen
};
GpuMemory gpu_memory();

}  // namespace lockstep
