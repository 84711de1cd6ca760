// All-gather of columns over NVLink, each rank's half of it: its own columns, rows apart in its matrix, go straight to their place in every
// peer's matrix, then a number to every peer, and the kernel ends when the peers' numbers are here. No NCCL, no staging, no host. Raw
// pointers, dims, stream last; no include of src/.
//
// Ranks call it in the same order. When a call has ended on a rank, all columns of that gather are in its matrix, and its peers have done all
// that they put into their streams before their call. So a matrix may be gathered again only after another gather in between (rows 0 will do):
// then no peer can still be reading what the first one brought.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace lockstep::kernels {

inline constexpr int kMostPeers = 7;  // of a node's GPUs

struct Push {
  const std::byte* mine;           // this rank's columns
  size_t row_bytes, stride;        // bytes of a row's columns, and from one row to the next; everything a multiple of `unit`
  int rows, unit;                  // unit: 16, 8, 4 or 2 bytes, fewer than 2^30 in all
  int n_peers;
  std::byte* theirs[kMostPeers];   // the same columns in the peers' matrices
  uint32_t* their_flags[kMostPeers];  // at each peer, the number of this rank's last gather
  const uint32_t* flags[kMostPeers];  // here, the peers' numbers
  uint32_t* n_gathers;             // of this rank so far
  uint32_t* n_blocks_done;         // 0 between calls
  uint32_t* failed;                // set to 1 where a peer's number didn't come within `patience`
  uint64_t patience;               // ns; 0: for ever
};

// Until the peers' numbers, counted elsewhere, have come to `number`.
struct Await {
  int n_peers;
  const uint32_t* flags[kMostPeers];
  uint32_t number;
  uint32_t* failed;   // as Push's
  uint64_t patience;
};
cudaError_t await(const Await& args, cudaStream_t stream);

// Moves rows x row_bytes to each peer. Two ranks' calls must run at the same time: of a stream that is captured, too.
cudaError_t push(const Push& args, cudaStream_t stream);

}  // namespace lockstep::kernels
