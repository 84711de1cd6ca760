// Ranks as threads of one process: the Communicator of tests, with the semantics of MPI's (buffered sends, a root that runs
// ahead). Each is used by one thread. A rank whose Communicator is gone has left: who waits for it gets an Error, not a hang.
//   auto comms = make_thread_comms(4);   // comms[r] goes to thread r
#pragma once

#include <memory>
#include <vector>

#include "comm/communicator.h"

namespace lockstep {

std::vector<std::unique_ptr<Communicator>> make_thread_comms(int n);

}  // namespace lockstep
