// `lockstep run`: prompts in, completions out. The file to read first.
#pragma once

#include "base/error.h"
#include "cli.h"
#include "comm/mpi_session.h"

namespace lockstep {

ExitCode run(MpiSession& mpi, const RunOptions& options);  // Collective over all ranks; the code is rank 0's.

}  // namespace lockstep
