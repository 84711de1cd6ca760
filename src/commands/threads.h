// How many threads a rank computes with: its cores, shared fairly with the other ranks of its node, so that a node full of
// ranks has no more threads than cores. OMP_NUM_THREADS is not looked at: batch systems set it for other programs (--threads
// decides).
//   const int n = threads_for_rank(mpi, options.threads);
#pragma once

#include <optional>
#include <string>

#include "comm/mpi_session.h"

namespace lockstep {

// requested: --threads, 0 where it wasn't given.
int threads_for_rank(const MpiSession& session, int requested);

// core_share: cores of this rank, those it shares with others in equal parts (MpiSession). quota_cores: what the node's ranks
// may use together. At least 1.
int derive_threads(double core_share, std::optional<double> quota_cores, int node_size, int requested);

// Of the control group this process is in (Linux, version 2 or 1): cores' worth of time, nothing where there is no limit.
std::optional<double> cgroup_quota_cores();
std::optional<double> parse_cpu_max(const std::string& text);  // "150000 100000" -> 1.5, "max 100000" -> nothing

}  // namespace lockstep
