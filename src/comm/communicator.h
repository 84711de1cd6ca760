// What ranks say to each other. One of the program's two virtual interfaces: MPI (mpi_comm.h) between processes, threads of
// one process in tests (thread_comm.h), nothing at all for one rank (`SoloComm` below), NCCL on GPUs (later).
// There is no reduction: tensor parallelism only moves bytes, so no sum depends on the number of ranks.
//
// All calls throw Error (communication) naming the peer. Collective: all ranks of the communicator call it, in the same order.
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tensor/tensor.h"

namespace lockstep {

struct Message {
  int from = 0;
  std::vector<std::byte> bytes;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Collective. Each rank has written columns ranges[rank()] of `matrix` [rows, cols]; afterwards every rank has all of them.
  // ranges: one for each rank, disjoint, covering what is read later; they may be uneven or empty.
  virtual void all_gather(TensorView matrix, std::span<const Range> ranges, StreamRef stream = {}) = 0;

  // all_gather of a part of the matrix's rows, in two calls: what is put into the stream between them may run at the same time,
  // what is put in after end_gather sees the columns. Begun gathers end in their order; until then this rank's columns stay as
  // they are. For steps of at least `rows_beside` rows, the same on all ranks; for fewer all_gather is better.
  virtual int64_t rows_beside() const { return std::numeric_limits<int64_t>::max(); }
  virtual void begin_gather(TensorView matrix, Range rows, std::span<const Range> ranges) {
    all_gather(matrix.part(rows), ranges);
  }
  virtual void end_gather() {}

  // Collective, small messages. The root does not wait for the others to arrive: it may run ahead by many broadcasts.
  virtual void broadcast(std::vector<std::byte>& bytes, int root) = 0;
  // Of the root of broadcasts: waits until all but its last `most_left` need nothing more of it. A rank that then waits for a
  // GPU, and so for its peers, without a call of this interface can't be what those wait for.
  virtual void flush(size_t most_left) = 0;
  // Of a rank that waits for something else meanwhile, again and again: what is on its way goes on. Never waits.
  virtual void progress() {}

  // A matrix between two ranks; the receiver knows its shape. `send` may return before the receiver has called `recv`, and the
  // matrix may be overwritten at once. Calls between a pair match in order.
  virtual void send(TensorView matrix, int to, StreamRef stream = {}) = 0;
  virtual void recv(TensorView matrix, int from, StreamRef stream = {}) = 0;

  // Two-sided control messages, apart from the matrices: post returns at once; poll returns the next arrived message, if any.
  virtual void post(std::span<const std::byte> bytes, int to) = 0;
  virtual std::optional<Message> poll() = 0;

  // Collective. Every rank's bytes, by rank; for start-up agreements and final sums.
  virtual std::vector<std::vector<std::byte>> exchange(std::span<const std::byte> mine) = 0;
  virtual void barrier() = 0;  // Collective.
};

// One rank alone: nothing to say.
std::unique_ptr<Communicator> make_solo_comm();

// Collective. The smallest of all ranks' values; of 0 and 1: whether all have 1.
int64_t smallest(Communicator& comm, int64_t mine);

// Give the processor away while waiting for a peer: brief spinning, then yields, then sleeps of up to 100 us, so that more
// ranks than cores make progress. `attempt` counts up from 0.
void relax(int attempt);

}  // namespace lockstep
