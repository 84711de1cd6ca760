// What computes: the CPU, or this rank's GPU. The rest of the program sees Ops.
//   const RunOptions options = with_device(given);  auto ops = make_ops(options, choose_device(options, mpi, *node),
//   n_threads);
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cli.h"
#include "comm/communicator.h"
#include "comm/mpi_session.h"
#include "journal/input_file.h"
#include "mesh/mesh.h"
#include "ops/ops.h"
#include "telemetry/nvml.h"

namespace lockstep {

// --device auto becomes cuda where this build has it and a GPU is there, else cpu; and what depends on it gets its default.
// Error (usage) for cuda in a build without it, and for dtypes that a GPU doesn't run.
RunOptions with_device(RunOptions options);

// --max-sequences of this layout: where it wasn't given (`given`: the options before with_device), on a GPU each part of the
// sequences that takes turns gets as many as with_device says.
int64_t most_sequences(const RunOptions& given, const RunOptions& options, const Mesh& mesh);

// How many sequences the scheduler of each replica shall hold at a time: --max-sequences where it was given. Else on a GPU so
// many that those to run end about together (even_sequences), but not so few that a step costs about the same with more (256),
// and 512 at most for each part that takes turns. Buffers and slots are for options.max_sequences all the same.
int64_t sequences_at_a_time(const RunOptions& given, const RunOptions& options, const Mesh& mesh,
                            std::span<const InputLine> lines, std::span<const uint32_t> to_run);

// Error (usage) for layouts of several GPUs a replica in a build without NCCL.
void check_device(const RunOptions& options, const Mesh& mesh);

// Which of the GPUs that it sees a rank takes: in order of the node's ranks, each the first one that no rank before it has.
// visible: [node_size] by rank, names of the GPUs themselves, so that it doesn't matter what the launcher shows to whom; a rank
// without any is no concern here. Error (usage) if there are more ranks than GPUs.
int device_for(int node_rank, const std::vector<std::vector<std::string>>& visible, const std::string& host);

// Collective over the ranks of a node: this rank's GPU by the above, 0 where it computes on the CPU.
int choose_device(const RunOptions& options, const MpiSession& mpi, Communicator& node);

// Collective over world. [n_ranks] what a person looks for: "r5 on node03, GPU 1 (0000:3B:00.0)".
std::vector<std::string> name_ranks(Communicator& world, const MpiSession& mpi, const RunOptions& options, int device);

std::unique_ptr<Ops> make_ops(const RunOptions& options, int device, int n_threads);

// Of this rank's GPU, now; empty on CPUs, whose free memory is everybody's.
std::function<uint64_t()> free_bytes_of(const RunOptions& options);

struct RankMemory {
  uint64_t bytes = 0;   // that weights and KV pages may take together now
  double kv_share = 1;  // KV pages get so much of what the weights leave
};
// Host: the free memory, shared by the node's ranks; KV pages get --memory-fraction (0.5). GPU: the free memory without the
// part of the whole that --memory-fraction (0.9) leaves alone.
RankMemory memory_of_rank(const RunOptions& options, int node_size);

uint64_t kv_bytes_available(const RunOptions& options, int node_size);  // bytes that KV pages may take now, by the above

// Of the host, for the KV of a rank's preempted sequences: --swap-memory. Without it: nothing on a CPU, whose sequences lie
// there anyway; on a GPU 16 GiB, but of what is free on the node all its ranks together a quarter at most.
uint64_t swap_bytes(const RunOptions& options, int node_size);

// What to measure this rank's GPU by: its driver. Empty on CPUs, and where there is no NVML, which a line of the log says.
// For tests, which have no GPU: LOCKSTEP_NVML_GPU=BUS_ID[,BUS_ID...] gives a run on CPUs something to measure, by the number of
// the rank on its node; LOCKSTEP_NVML_LIBRARY=PATH is the library.
struct RankGpu {
  std::string bus_id;
  ReadGpu read;
};
RankGpu gpu_of_rank(const RunOptions& options, const MpiSession& mpi, int device);

}  // namespace lockstep
