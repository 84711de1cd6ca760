// A strided matrix to contiguous bytes and back, and the parts of a collective that every Communicator does alike.
// Not for: sending anything (mpi_comm.cpp, thread_comm.cpp do).
//   pack(buffer.data(), matrix.columns(range));   unpack(matrix.columns(range), buffer);
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "tensor/tensor.h"

namespace lockstep {

inline size_t packed_bytes(TensorView m) {
  return static_cast<size_t>(m.rows) * static_cast<size_t>(m.cols) * size_of(m.dtype);
}

// Its bytes lie together: no copy needed.
inline bool is_contiguous(TensorView m) { return m.rows <= 1 || m.row_stride == m.cols; }

void pack(std::byte* to, TensorView from);
void unpack(TensorView to, std::span<const std::byte> from);  // from.size() == packed_bytes(to), else throws

// One range for each rank, inside the matrix; throws Error.
void check_ranges(TensorView matrix, std::span<const Range> ranges, int n_ranks);

// Everybody's bytes in ceil(log2 n) rounds, each rank talking to log2 n others (Bruck's algorithm): before round k a rank holds
// the blocks of ranks r, r + 1, ... r + 2^k - 1 (mod n) and passes them on to rank r - 2^k.
//   push(bytes, to): buffered; pull(from): waits. Both keep the order of a pair.
template <class Push, class Pull>
std::vector<std::vector<std::byte>> exchange_by_doubling(int rank, int n, std::span<const std::byte> mine, Push push,
                                                         Pull pull) {
  std::vector<std::vector<std::byte>> held{{mine.begin(), mine.end()}};  // held[i]: of rank + i (mod n)
  for (int distance = 1; distance < n; distance *= 2) {
    const int n_blocks = distance < n - distance ? distance : n - distance;
    ByteWriter out;
    for (int i = 0; i < n_blocks; ++i) out.put_vector(held[i]);
    push(out.take(), (rank - distance + n) % n);
    const std::vector<std::byte> in = pull((rank + distance) % n);
    ByteReader reader(in);
    for (int i = 0; i < n_blocks; ++i) held.push_back(reader.get_vector<std::byte>());
    check(reader.at_end(), "exchange: a message with more than ", n_blocks, " blocks");
  }
  std::vector<std::vector<std::byte>> by_rank(n);
  for (int i = 0; i < n; ++i) by_rank[(rank + i) % n] = std::move(held[i]);
  return by_rank;
}

}  // namespace lockstep
