// Memory that ranks of one node share, for what they read together. Not for messages (communicator.h).
//   std::shared_ptr<std::byte> memory = make_node_memory(mpi.node_ranks, 8 << 20);
#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace lockstep {

// Collective over the ranks named, in one order on all of them; all are on this node. Zeros at first. Empty on all of them
// where the node can't give it. The last owner's end is collective too (not while an exception passes: then it is left to the
// system).
std::shared_ptr<std::byte> make_node_memory(std::span<const int> world_ranks, size_t bytes);

}  // namespace lockstep
