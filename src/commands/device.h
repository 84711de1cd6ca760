// What computes: the CPU, or this rank's GPU. The rest of the program sees Ops.
//   const RunOptions options = with_device(given);  auto ops = make_ops(options, mpi, n_threads);
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cli.h"
#include "comm/mpi_session.h"
#include "mesh/mesh.h"
#include "ops/ops.h"
#include "telemetry/nvml.h"

namespace lockstep {

// --device auto becomes cuda where this build has it and a GPU is there, else cpu; and what depends on it gets its default.
// Error (usage) for cuda in a build without it.
RunOptions with_device(RunOptions options);

// A GPU computes a whole replica: Error (usage) for layouts that share one, and for dtypes that it doesn't run.
void check_device(const RunOptions& options, const Mesh& mesh);

// On GPUs: the one with the number of the rank on its node, counted round where there are fewer.
std::unique_ptr<Ops> make_ops(const RunOptions& options, const MpiSession& mpi, int n_threads);

// Bytes that KV pages may take now. Host: --memory-fraction (0.5) of the free memory, shared by the node's ranks. GPU: the free
// memory without the part of the whole that --memory-fraction (0.9) leaves alone.
uint64_t kv_bytes_available(const RunOptions& options, int node_size);

// What to measure this rank's GPU by: its driver. Empty on CPUs, and where there is no NVML, which a line of the log says.
// For tests, which have no GPU: LOCKSTEP_NVML_GPU=BUS_ID[,BUS_ID...] gives a run on CPUs something to measure, by the number of
// the rank on its node; LOCKSTEP_NVML_LIBRARY=PATH is the library.
struct RankGpu {
  std::string bus_id;
  ReadGpu read;
};
RankGpu gpu_of_rank(const RunOptions& options, const MpiSession& mpi);

}  // namespace lockstep
