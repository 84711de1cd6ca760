// The layout of a run: how many replicas, stages and tensor ranks the ranks of the job make.
#pragma once

#include "cli.h"
#include "mesh/mesh.h"

namespace lockstep {

// Derives what the options leave open; what is left over becomes replicas. Error (usage) with the numbers if it doesn't come
// out.
Mesh layout_of(const RunOptions& options, int n_ranks);

// The scheduler's lag: with stages, one step less than micro-batches in flight; on the CPU of one stage none is needed.
int lag_of(const RunOptions& options, const Mesh& mesh);

}  // namespace lockstep
