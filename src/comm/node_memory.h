// Memory that ranks of one node share, for what they read together. Not for messages (communicator.h).
//   std::shared_ptr<std::byte> memory = make_node_memory(*node, 8 << 20);
// A memfd that the others open through /proc, and not an MPI window: /dev/shm may be too small for one (containers), where Open
// MPI 4.1 leaves the other ranks waiting.
#pragma once

#include <cstddef>
#include <memory>

#include "comm/communicator.h"

namespace lockstep {

// Collective over the ranks of a node. Zeros at first; gone when no rank has it any more. Empty on all of them where one can't
// have it: no memory, or processes that don't see each other.
std::shared_ptr<std::byte> make_node_memory(Communicator& node, size_t bytes);

}  // namespace lockstep
