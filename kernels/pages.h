// KV pages of all layers between the GPU and pinned memory of the host, of preempted sequences. Raw pointers, dims, stream
// last; no include of src/.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace lockstep::kernels {

inline constexpr int kMostPages = 256;  // of a launch: what its arguments have room for

struct CopyPages {
  bool to_host;
  int n, n_layers;
  std::byte* pool;                 // [n_layers, layer_bytes]: pages, one after the other
  size_t layer_bytes, page_bytes;  // multiples of 16
  int32_t page[kMostPages];        // [n]  in the pool
  std::byte* host[kMostPages];     // [n]  [n_layers, page_bytes] each, where the GPU reaches it
};

// Moves n x n_layers x page_bytes; copies of one launch don't overlap.
cudaError_t copy_pages(const CopyPages& args, cudaStream_t stream);

}  // namespace lockstep::kernels
