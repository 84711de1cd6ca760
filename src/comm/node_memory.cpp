#include "comm/node_memory.h"

#include <cstring>
#include <exception>
#include <vector>

#include "comm/mpi_check.h"

namespace lockstep {

namespace {

struct Window {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Win window = MPI_WIN_NULL;
  int n_exceptions = std::uncaught_exceptions();

  void operator()(std::byte*) {
    if (std::uncaught_exceptions() > n_exceptions) return;  // the others may not come
    if (window != MPI_WIN_NULL) MPI_Win_free(&window);
    MPI_Comm_free(&comm);
  }
};

}  // namespace

std::shared_ptr<std::byte> make_node_memory(std::span<const int> world_ranks, size_t bytes) {
  MPI_Group world = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
  mpi_check(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
  const int included = MPI_Group_incl(world, static_cast<int>(world_ranks.size()), world_ranks.data(), &group);
  MPI_Group_free(&world);
  mpi_check(included, "a group of ", world_ranks.size(), " ranks");
  Window owner;
  const int made = MPI_Comm_create_group(MPI_COMM_WORLD, group, 1, &owner.comm);
  MPI_Group_free(&group);
  mpi_check(made, "MPI_Comm_create_group");
  int rank = 0;
  mpi_check(MPI_Comm_rank(owner.comm, &rank), "MPI_Comm_rank");

  std::byte* data = nullptr;
  MPI_Aint size = rank == 0 ? static_cast<MPI_Aint>(bytes) : 0;
  int unit = 1;
  const int allocated = MPI_Win_allocate_shared(size, unit, MPI_INFO_NULL, owner.comm, &data, &owner.window);
  if (allocated == MPI_SUCCESS) mpi_check(MPI_Win_shared_query(owner.window, 0, &size, &unit, &data), "MPI_Win_shared_query");
  if (allocated == MPI_SUCCESS && rank == 0) std::memset(data, 0, bytes);
  int mine = allocated == MPI_SUCCESS, all = 0;
  mpi_check(MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, owner.comm), "MPI_Allreduce");  // also: it is zeroed now
  if (all == 0) {
    if (mine == 0) owner.window = MPI_WIN_NULL;
    MPI_Comm_free(&owner.comm);  // a window that only some have can't be freed
    return nullptr;
  }
  return {data, owner};
}

}  // namespace lockstep
