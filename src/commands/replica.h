// One replica on this rank, built from the ground up: the communicators, the plan of its memory, its stage and engine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cli.h"
#include "comm/communicator.h"
#include "comm/mpi_session.h"
#include "commands/model_source.h"
#include "mesh/mesh.h"
#include "model/node_reader.h"
#include "model/shard.h"
#include "ops/ops.h"
#include "sched/scheduler.h"

namespace lockstep {

// The groups a rank belongs to: made once, in one order, by all ranks. Both count the seconds spent in them.
struct Groups {
  std::unique_ptr<Communicator> tp;       // ranks of one stage of one replica
  std::unique_ptr<Communicator> replica;  // all ranks of one replica, stage by stage
  double comm_s = 0;
};
// names: [n_ranks], for messages. On GPUs matrices go from GPU to GPU, in the stream of `ops`; only groups that have some to
// pass take memory there. Must outlive `ops`: its recordings hold calls of these communicators.
std::unique_ptr<Groups> make_groups(const Mesh& mesh, const Place& place, const RunOptions& options, const ModelConfig& config,
                                    const Ops& ops, const std::vector<std::string>& names);

// Collective over the ranks of each node: those that load the same weights read them together.
std::unique_ptr<NodeReader> make_node_reader(const Mesh& mesh, const MpiSession& mpi, const ModelSource& model,
                                             Communicator& node);

// Collective over the node's ranks: logs what loading took from the files, one line a node.
void log_reading(const NodeReader& reader, Communicator& node, double seconds);

// Pages this rank can hold: of --kv-memory, or else of what --memory-fraction leaves of the free memory, but never more than
// --max-sequences sequences of --max-model-len could fill. Error (usage) with both numbers if one such sequence doesn't fit.
int64_t affordable_pages(const RunOptions& options, const ModelSource& model, const Shard& shard, const Ops& ops,
                         int node_size);

// Pages of host memory this rank can hold for preempted sequences, by swap_bytes; no more than n_pages, as many as there are.
int64_t affordable_host_pages(const RunOptions& options, size_t bytes_a_page, int64_t n_pages, int node_size);

SchedulerOptions scheduling_of(const RunOptions& options, const ModelSource& model, const Mesh& mesh, int64_t n_pages,
                               int64_t n_host_pages);

}  // namespace lockstep
