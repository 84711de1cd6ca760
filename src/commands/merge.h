// `lockstep merge DIR...`: the final files from what the journals hold, without a model: after a kill between the last commit
// and the merge, with --partial at any time, or of several directories that ran parts of one input.
#pragma once

#include "base/error.h"
#include "cli.h"
#include "comm/mpi_session.h"

namespace lockstep {

// Rank 0 does it alone. The final files go into --output, or else the first directory. Shards have to be all of an input's,
// each with all of its lines, unless --partial. Error (usage) if the directories don't fit together.
ExitCode merge(const MpiSession& mpi, const MergeOptions& options);

}  // namespace lockstep
