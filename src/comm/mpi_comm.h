// Ranks as processes: the Communicator over MPI. Each has a communicator of its own and a tag for each kind of traffic, so that
// matrices, broadcasts and control messages never meet. Waiting polls MPI and gives the processor away (`relax`), since an MPI
// library's own blocking calls spin, and there may be more ranks than cores.
//   auto tp_group = make_mpi_comm(ranks_of_my_tensor_group);   needs an MpiSession; main thread only
// Its destructor waits for what is still under way (not while an exception passes), so peers must have received it by then.
#pragma once

#include <memory>
#include <span>

#include "comm/communicator.h"

namespace lockstep {

// Collective over the ranks named, in one order on all of them; the others need not call it. Rank i of the communicator is
// world_ranks[i]; this process must be among them.
std::unique_ptr<Communicator> make_mpi_comm(std::span<const int> world_ranks);

std::unique_ptr<Communicator> make_mpi_world();  // Collective over all ranks.

}  // namespace lockstep
