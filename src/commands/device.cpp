#include "commands/device.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "base/error.h"
#ifdef LOCKSTEP_CUDA
#include "ops/cuda/cuda_device.h"
#endif

namespace lockstep {

namespace {

#ifndef LOCKSTEP_CUDA
int n_gpus() { return 0; }
#endif

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

}  // namespace lockstep
