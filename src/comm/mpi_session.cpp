#include "comm/mpi_session.h"

#include <sched.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string_view>
#include <vector>

#include "comm/mpi_check.h"

namespace lockstep {

namespace {

// Collective over the ranks of a node.
double share_of_cores(MPI_Comm node, int node_size) {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  if (::sched_getaffinity(0, sizeof mine, &mine) != 0) CPU_ZERO(&mine);  // more than 1024 cores
  std::vector<cpu_set_t> all(node_size);
  mpi_check(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, node),
            "MPI_Allgather of core masks");
  double share = 0;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &mine)) continue;
    int n_owners = 0;
    for (const cpu_set_t& mask : all) n_owners += CPU_ISSET(core, &mask) ? 1 : 0;
    share += 1.0 / n_owners;
  }
  if (share == 0) share = static_cast<double>(::sysconf(_SC_NPROCESSORS_ONLN)) / node_size;
  return share;
}

std::optional<long long> number(const char* text) {
  if (text == nullptr) return std::nullopt;
  long long value = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

// For tests on one machine: LOCKSTEP_NODE_RANKS=N has every N ranks of it believe that they are a node. Takes over `node`.
MPI_Comm as_smaller_nodes(MPI_Comm node, int rank) {
  const auto n_ranks = number(::getenv("LOCKSTEP_NODE_RANKS"));
  if (!n_ranks) return node;
  if (*n_ranks < 1) fail(ExitCode::usage, "LOCKSTEP_NODE_RANKS=", *n_ranks, ": a number of ranks >= 1 is expected");
  int node_rank = 0;
  mpi_check(MPI_Comm_rank(node, &node_rank), "MPI_Comm_rank");
  MPI_Comm part = MPI_COMM_NULL;
  mpi_check(MPI_Comm_split(node, static_cast<int>(node_rank / *n_ranks), rank, &part), "MPI_Comm_split");
  MPI_Comm_free(&node);
  return part;
}

std::string host_name() {
  char name[256] = "";
  if (::gethostname(name, sizeof name - 1) != 0) return "unknown";
  const std::string_view full = name;
  return std::string(full.substr(0, full.find('.')));
}

}  // namespace

MpiSession::MpiSession(int* argc, char*** argv) : host(host_name()), claim(launcher_claim(::getenv)) {
  int provided = MPI_THREAD_SINGLE;
  mpi_check(MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  if (provided < MPI_THREAD_FUNNELED)
    fail(ExitCode::environment, "this MPI library does not permit threads (MPI_THREAD_FUNNELED)");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);  // communicators made from it inherit this
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  mpi_check(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  mpi_check(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");

  MPI_Comm node = MPI_COMM_NULL;
  mpi_check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node), "MPI_Comm_split_type");
  node = as_smaller_nodes(node, rank);
  mpi_check(MPI_Comm_rank(node, &node_rank), "MPI_Comm_rank");
  mpi_check(MPI_Comm_size(node, &node_size), "MPI_Comm_size");
  node_ranks.resize(node_size);
  mpi_check(MPI_Allgather(&rank, 1, MPI_INT, node_ranks.data(), 1, MPI_INT, node), "MPI_Allgather of ranks");
  core_share = share_of_cores(node, node_size);
  MPI_Comm_free(&node);
}

MpiSession::~MpiSession() {
  // With an exception on its way the others may be waiting in a collective, and MPI_Finalize would wait for them.
  if (std::uncaught_exceptions() > 0) return;
  const int code = MPI_Finalize();
  if (code != MPI_SUCCESS) std::fprintf(stderr, "[%s r%d/%d] MPI_Finalize: error %d\n", host.c_str(), rank, size, code);
}

void MpiSession::abort(int code) {
  MPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);
}

std::optional<LauncherClaim> launcher_claim(const std::function<const char*(const char*)>& getenv) {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "JSM_NAMESPACE_SIZE"})
    if (const auto n = number(getenv(variable))) return LauncherClaim{variable, *n};
  if (const auto rank = number(getenv("PMIX_RANK")); rank && *rank > 0) return LauncherClaim{"PMIX_RANK", *rank + 1};
  for (const char* variable : {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"})
    if (const auto n = number(getenv(variable))) return LauncherClaim{variable, *n};
  return std::nullopt;
}

std::optional<std::string> launcher_mismatch(int world_size, const std::optional<LauncherClaim>& claim, bool single_wanted) {
  if (world_size != 1 || single_wanted || !claim || claim->n_ranks <= 1) return std::nullopt;
  const std::string_view variable = claim->variable;
  std::string reason = variable == "PMIX_RANK"
                           ? concat("this process sees a world of 1 rank, but PMIX_RANK=", claim->n_ranks - 1)
                           : concat("this process sees a world of 1 rank, but ", variable, "=", claim->n_ranks);
  if (variable == "SLURM_NTASKS")
    reason += ": start it with srun --mpi=pmix or mpirun inside the job";
  else if (variable.starts_with("SLURM"))
    reason +=
        ": srun and this MPI library do not understand each other; use srun --mpi=pmix (srun --mpi=list shows what there is) "
        "or mpirun";
  else
    reason +=
        ": the launcher belongs to another MPI than the library this program uses (mpirun --version; ldd lockstep | grep "
        "libmpi); use the mpirun of that library, or srun --mpi=pmix";
  return reason + ". If one rank is wanted, set LOCKSTEP_SINGLE=1";
}

void check_launcher(const MpiSession& session) {
  const char* single = std::getenv("LOCKSTEP_SINGLE");
  const bool single_wanted = single != nullptr && std::string_view(single) == "1";
  if (const auto reason = launcher_mismatch(session.size, session.claim, single_wanted)) fail(ExitCode::environment, *reason);
}

}  // namespace lockstep
