// The end of a job on whose errors the ranks could not agree: said by the rank that has it, for all.
//   catch (const std::exception& e) { end_all_ranks(mpi, e); }
#pragma once

#include <exception>

#include "comm/mpi_session.h"

namespace lockstep {

// Logs what an Error (with its place in the source) or another exception says and ends all ranks with its exit code.
[[noreturn]] void end_all_ranks(MpiSession& mpi, const std::exception& e);

}  // namespace lockstep
