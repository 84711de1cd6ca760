// The layout of a run: how many replicas, stages and tensor ranks the ranks of the job make.
//   Mesh mesh = decide_layout(*world, mpi, options, model, *ops);
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "cli.h"
#include "comm/communicator.h"
#include "comm/mpi_session.h"
#include "commands/model_source.h"
#include "mesh/mesh.h"
#include "ops/ops.h"

namespace lockstep {

struct LayoutFacts {
  std::vector<int> node_of_rank;  // [n_ranks] any numbers, equal for ranks of one node
  uint64_t rank_bytes = 0;        // that weights and KV may take together, of the rank that has least
  int64_t n_kv_heads = 1, n_layers = 1;
  std::function<uint64_t(int tp, int pp)> bytes_needed;  // by the fullest rank of a replica: weights, KV of one sequence
};

// What --tp, --pp and --dp leave open. Of the layouts that fit the memory, the one with the smallest replica, so with the most
// of them: data-parallel over all ranks if a model fits one, else the fewest tensor ranks inside a node, and stages only where
// no number of tensor ranks inside a node will do. Error (usage) with the numbers if nothing comes out; a layout that is the
// only one possible is taken whatever it needs.
Mesh choose_layout(const RunOptions& options, const LayoutFacts& facts);

// Whether tensor ranks of one stage are on different nodes.
bool tp_spans_nodes(const Mesh& mesh, const std::vector<int>& node_of_rank);

// Collective over world. The same for all: rank 0 decides, by the least memory of any rank. Throws AgreedError.
Mesh decide_layout(Communicator& world, const MpiSession& mpi, const RunOptions& options, const ModelSource& model,
                   const Ops& ops);

// The scheduler's lag: a step for each stage but one, so that all have work, and on GPUs one more, so that the host prepares a
// step while the GPU computes the one before.
int lag_of(const RunOptions& options, const Mesh& mesh);
// Parts of a replica's sequences that take turns, a step each, since the first stage waits for what the last one draws.
int turns_of(const RunOptions& options, const Mesh& mesh);
// Of a step at most: those of one part.
int64_t sequences_of_step(const RunOptions& options, const Mesh& mesh);
// Steps launched before the oldest is collected: with stages only on GPUs, one.
int ahead_of(const RunOptions& options, const Mesh& mesh);

}  // namespace lockstep
