// Matrices in GPU memory between ranks, by NCCL; everything small goes the host communicator's way. Made by all ranks of a
// group at the same point of the program: the group's first rank draws NCCL's id and the host communicator carries it.
//   auto comm = make_nccl_comm(make_mpi_comm(ranks), {.stream = stream, .name = "tp of d0p0", .most_bytes = ...});
// Calls are put into the stream and return; what they gather is there when the stream gets to it. NVLS is off. A recording of a
// stream (CUDA graph) may hold such calls; it has to go before the communicator does, or the communicator's end never comes.
// NCCL is asked for faults while the program waits for the GPU (watch.h), so that a broken link or peer ends the job.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace lockstep {

struct NcclOptions {
  StreamRef stream;       // of the rank's Ops; the GPU is the one it belongs to
  std::string name;       // for messages
  size_t most_bytes = 0;  // of a matrix that is gathered; by NCCL: room for one is taken at once, and stays where it is
  // A group that gathers does so by stores into the peers' memory, where all are on one node and reach it: then there is no
  // NCCL communicator, which would take hundreds of megabytes, and no send and recv.
  bool peers = true;
  std::vector<std::string> members = {};  // [size] for messages: "r5 on node03, GPU 1"
};

// Collective over `host`. Error (communication) with the names of those that are not there, or not ready, after
// LOCKSTEP_COMM_TIMEOUT_S seconds (120 if unset or 0).
std::unique_ptr<Communicator> make_nccl_comm(std::unique_ptr<Communicator> host, const NcclOptions& options);

}  // namespace lockstep
