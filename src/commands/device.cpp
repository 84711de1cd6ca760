#include "commands/device.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/log.h"
#include "commands/layout.h"
#include "engine/work_order.h"
#ifdef LOCKSTEP_CUDA
#include "ops/cuda/cuda_device.h"
#endif

namespace lockstep {

namespace {

#ifndef LOCKSTEP_CUDA
int n_gpus() { return 0; }
std::vector<std::string> gpu_names() { return {}; }
#endif

std::string bus_id_of(const RunOptions& options, const MpiSession& mpi, int device) {
#ifdef LOCKSTEP_CUDA
  if (options.device == "cuda") return gpu_bus_id(device);
#endif
  (void)options, (void)device;
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
  if (gpu && options.dtype == "f32") fail(ExitCode::usage, "--dtype f32 --device cuda: GPUs run bf16");
  if (options.max_batch_tokens == 0) options.max_batch_tokens = gpu ? 8192 : 2048;
  if (options.max_sequences == 0) options.max_sequences = gpu ? 512 : 64;
  if (gpu && options.dtype == "auto") options.dtype = "bf16";
  return options;
}

int64_t most_sequences(const RunOptions& given, const RunOptions& options, const Mesh& mesh) {
  if (given.max_sequences != 0 || options.device != "cuda") return options.max_sequences;
  return options.max_sequences * turns_of(options, mesh);
}

int64_t sequences_at_a_time(const RunOptions& given, const RunOptions& options, const Mesh& mesh,
                            std::span<const InputLine> lines, std::span<const uint32_t> to_run) {
  constexpr int64_t kFewest = 256;  // rows from which on the time of a GPU's products grows with their number
  if (given.max_sequences != 0 || options.device != "cuda") return options.max_sequences;
  return std::clamp(even_sequences(lines, to_run, mesh.dp), std::min(kFewest, options.max_sequences), options.max_sequences);
}

void check_device(const RunOptions& options, const Mesh& mesh) {
  if (options.device != "cuda") return;
  if (mesh.tp * mesh.pp == 1) return;
#ifdef LOCKSTEP_NCCL
  return;
#endif
  fail(ExitCode::usage, "tp ", mesh.tp, " x pp ", mesh.pp, " on GPUs: this lockstep was built without NCCL; --dp uses several ",
       "GPUs, --device cpu has all layouts");
}

int device_for(int node_rank, const std::vector<std::vector<std::string>>& visible, const std::string& host) {
  std::set<std::string> all, taken;
  for (const auto& names : visible) all.insert(names.begin(), names.end());
  const auto n_ranks = std::count_if(visible.begin(), visible.end(), [](const auto& names) { return !names.empty(); });
  int mine = 0;
  for (size_t rank = 0; rank < visible.size(); ++rank) {  // all of them, so that all fail if one does
    const auto& names = visible[rank];
    const auto free = std::find_if(names.begin(), names.end(), [&](const std::string& name) { return !taken.contains(name); });
    if (names.empty()) continue;
    if (free == names.end())
      fail(ExitCode::usage, host, ": ", n_ranks, " ranks, ", all.size(),
           " GPUs, and each rank needs one that no other has: start ", "fewer ranks a node, or --device cpu");
    taken.insert(*free);
    if (static_cast<int>(rank) == node_rank) mine = static_cast<int>(free - names.begin());
  }
  return mine;
}

int choose_device(const RunOptions& options, const MpiSession& mpi, Communicator& node) {
  ByteWriter w;
  const auto names = options.device == "cuda" ? gpu_names() : std::vector<std::string>();
  for (const std::string& name : names) w.put_string(name);
  std::vector<std::vector<std::string>> visible;
  for (const auto& bytes : node.exchange(w.bytes())) {
    auto& theirs = visible.emplace_back();
    for (ByteReader r(bytes); !r.at_end();) theirs.push_back(r.get_string());
  }
  const int device = device_for(mpi.node_rank, visible, mpi.host);
  const bool one_each = std::all_of(visible.begin(), visible.end(), [](const auto& shown) { return shown.size() == 1; });
  if (mpi.node_rank == 0 && visible.size() > 1 && one_each)
    log_warning(mpi.host, ": each rank is shown one GPU alone, so direct copies between the GPUs may be unavailable; ",
                "for tp or pp let every rank of a node see all of its GPUs");
  return device;
}

std::vector<std::string> name_ranks(Communicator& world, const MpiSession& mpi, const RunOptions& options, int device) {
  std::string mine = concat("r", mpi.rank, " on ", mpi.host);
  if (options.device == "cuda") mine += concat(", GPU ", device, " (", bus_id_of(options, mpi, device), ")");
  ByteWriter w;
  w.put_string(mine);
  std::vector<std::string> names;
  for (const auto& bytes : world.exchange(w.bytes())) names.push_back(ByteReader(bytes).get_string());
  return names;
}

std::unique_ptr<Ops> make_ops(const RunOptions& options, int device, int n_threads) {
  const auto n_slots = static_cast<int>(options.max_sequences);
#ifdef LOCKSTEP_CUDA
  if (options.device == "cuda")
    return make_cuda_ops(
        {.device = device, .n_slots = n_slots, .graphs = options.graphs, .max_tokens = options.max_batch_tokens});
#endif
  (void)device;
  return make_cpu_ops({.n_threads = n_threads, .n_slots = n_slots, .instruction_set = {}});
}

std::function<uint64_t()> free_bytes_of(const RunOptions& options) {
#ifdef LOCKSTEP_CUDA
  if (options.device == "cuda") return [] { return gpu_memory().free; };
#endif
  (void)options;
  return nullptr;
}

RankMemory memory_of_rank(const RunOptions& options, int node_size) {
#ifdef LOCKSTEP_CUDA
  if (options.device == "cuda") {
    const GpuMemory memory = gpu_memory();
    const auto kept = static_cast<uint64_t>(static_cast<double>(memory.total) * (1 - options.memory_fraction.value_or(0.9)));
    return {memory.free > kept ? memory.free - kept : 0, 1};
  }
#endif
  return {available_host_bytes() / static_cast<uint64_t>(node_size), options.memory_fraction.value_or(0.5)};
}

uint64_t kv_bytes_available(const RunOptions& options, int node_size) {
  const RankMemory memory = memory_of_rank(options, node_size);
  return static_cast<uint64_t>(static_cast<double>(memory.bytes) * memory.kv_share);
}

uint64_t swap_bytes(const RunOptions& options, int node_size) {
  if (options.swap_memory) return *options.swap_memory;
  if (options.device != "cuda") return 0;
  return std::min(uint64_t{16} << 30, available_host_bytes() / 4 / static_cast<uint64_t>(node_size));
}

RankGpu gpu_of_rank(const RunOptions& options, const MpiSession& mpi, int device) {
  RankGpu gpu{.bus_id = bus_id_of(options, mpi, device)};
  if (gpu.bus_id.empty()) return gpu;
  const char* library = std::getenv("LOCKSTEP_NVML_LIBRARY");
  std::string why_not;
  gpu.read = nvml_reader(gpu.bus_id, library != nullptr ? library : kNvmlLibrary, why_not);
  if (!gpu.read) log_info("the GPU is not measured: ", why_not);
  return gpu;
}

}  // namespace lockstep
