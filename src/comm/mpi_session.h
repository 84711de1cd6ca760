// From MPI_Init_thread to MPI_Finalize, and who this process is among the ranks. One for a process, made first in main and
// outside its try block; MPI is called by the main thread only. Not for messages (mpi_comm.h).
//   MpiSession mpi(&argc, &argv); check_launcher(mpi); ... mpi.abort(12);
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

// What a launcher's environment variable says about the number of ranks.
struct LauncherClaim {
  std::string variable;
  long long n_ranks = 0;
};

struct MpiSession {
  MpiSession(int* argc, char*** argv);  // throws Error (environment, communication)
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  // Ends all ranks of the job; does not return. After an error: the others are waiting in a collective.
  [[noreturn]] void abort(int code);

  int rank = 0, size = 1;
  int node_rank = 0, node_size = 1;  // among the ranks on this node (for tests: LOCKSTEP_NODE_RANKS=2 makes nodes of two)
  std::vector<int> node_ranks;       // [node_size] their ranks in the world, ascending
  std::string host;
  // Cores this rank may use, those it shares with ranks of its node in equal parts: 2 ranks on one mask of 8 cores -> 4.0.
  double core_share = 1;
  std::optional<LauncherClaim> claim;  // as the environment was before MPI_Init, which changes it
};

// The innermost launcher's word, or nothing where this is no parallel job. In this order:
//   OMPI_COMM_WORLD_SIZE, PMI_SIZE, MV2_COMM_WORLD_SIZE, JSM_NAMESPACE_SIZE   set by mpirun, mpiexec, jsrun, srun --mpi=pmi2
//   PMIX_RANK                                                                PMIx gives no size: rank r means more than r ranks
//   SLURM_STEP_NUM_TASKS   in a step of srun: the tasks of this step
//   SLURM_NTASKS           in a batch script, outside any step: the tasks of the job, which nobody has started
// The first that is set decides: `mpirun -np 1` inside a job of 4 tasks is one rank by intent.
std::optional<LauncherClaim> launcher_claim(const std::function<const char*(const char*)>& getenv);

// The reason to refuse where this process sees one rank and its launcher started (or was given room for) more, or nothing.
std::optional<std::string> launcher_mismatch(int world_size, const std::optional<LauncherClaim>& claim, bool single_wanted);

// Throws Error (environment) with a hint: N processes that each see a world of one would do the same work N times into the
// same files. LOCKSTEP_SINGLE=1 permits it.
void check_launcher(const MpiSession& session);

}  // namespace lockstep
