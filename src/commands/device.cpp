#include "commands/device.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#ifdef LOCKSTEP_CUDA
#include "ops/cuda/cuda_device.h"
#endif

namespace lockstep {

namespace {

#ifndef LOCKSTEP_CUDA
int n_gpus() { return 0; }
#endif

std::string bus_id_of(const RunOptions& options, const MpiSession& mpi) {
#ifdef LOCKSTEP_CUDA
  if (options.device == "cuda") return gpu_bus_id(mpi.node_rank % n_gpus());
#endif
  (void)options;
  const char* for_tests = std::getenv("LOCKSTEP_NVML_GPU");
  std::istringstream text(for_tests != nullptr ? for_tests : "");
  std::vector<std::string> bus_ids;
  for (std::string id; std::getline(text, id, ',');) bus_ids.push_back(id);
  return bus_ids.empty() ? "" : bus_ids[static_cast<size_t>(mpi.node_rank) % bus_ids.size()];
}

// What the kernel thinks can be taken without swapping.
uint64_t available_host_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  uint64_t kib;
  while (file >> name >> kib >> unit)
    if (name == "MemAvailable:") return kib * 1024;
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE)) / 2;
}

}  // namespace

RunOptions with_device(RunOptions options) {
#ifndef LOCKSTEP_CUDA
  if (options.device == "cuda") fail(ExitCode::usage, "--device cuda: this lockstep was built without CUDA");
#endif
  if (options.device == "cuda" && n_gpus() == 0) fail(ExitCode::environment, "--device cuda: no GPU is visible");
  if (options.device == "auto") options.device = n_gpus() > 0 ? "cuda" : "cpu";
  const bool gpu = options.device == "cuda";
  if (options.max_batch_tokens == 0) options.max_batch_tokens = gpu ? 8192 : 2048;
  if (options.max_sequences == 0) options.max_sequences = gpu ? 512 : 64;
  if (gpu && options.dtype == "auto") options.dtype = "bf16";
  return options;
}

void check_device(const RunOptions& options, const Mesh& mesh) {
  if (options.device != "cuda") return;
  if (mesh.tp * mesh.pp > 1)
    fail(ExitCode::usage, "tp ", mesh.tp, " x pp ", mesh.pp,
         " on GPUs: not available in this version; --dp uses several GPUs, ", "--device cpu has all layouts");
  if (options.dtype == "f32") fail(ExitCode::usage, "--dtype f32 --device cuda: GPUs run bf16");
}

std::unique_ptr<Ops> make_ops(const RunOptions& options, const MpiSession& mpi, int n_threads) {
  const auto n_slots = static_cast<int>(options.max_sequences);
#ifdef LOCKSTEP_CUDA
  if (options.device == "cuda")     return make_cuda_ops({.device = mpi.node_rank % n_gpus(),
                          .n_slots = n_slots,
                          .graphs = options.graphs,
                          .max_tokens = options.max_batch_tokens});
#endif
  (void)mpi;
  return make_cpu_ops({.n_threads = n_threads, .n_slots = n_slots, .instruction_set = {}});
}

uint64_t kv_bytes_available(const RunOptions& options, int node_size) {
#ifdef LOCKSTEP_CUDA
  if (options.device == "cuda") {
    const GpuMemory memory = gpu_memory();
    const auto kept = static_cast<uint64_t>(static_cast<double>(memory.total) * (1 - options.memory_fraction.value_or(0.9)));
    return memory.free > kept ? memory.free - kept : 0;
  }
#endif
  return static_cast<uint64_t>(static_cast<double>(available_host_bytes()) * options.memory_fraction.value_or(0.5) / node_size);
}

RankGpu gpu_of_rank(const RunOptions& options, const MpiSession& mpi) {
  RankGpu gpu{.bus_id = bus_id_of(options, mpi)};
  if (gpu.bus_id.empty()) return gpu;
  const char* library = std::getenv("LOCKSTEP_NVML_LIBRARY");
  std::string why_not;
  gpu.read = nvml_reader(gpu.bus_id, library != nullptr ? library : kNvmlLibrary, why_not);
  if (!gpu.read) log_info("the GPU is not measured: ", why_not);
  return gpu;
}

}  // namespace lockstep
