// Memory for weights, activations and pages on the host, in huge pages where the system gives them. Weights of a small model
// are a few MB each and would lie on 4 KB pages by themselves: reading them once a token then waits for address translation (17
// against 30 GB/s a core, bf16 and f32 [960, 576], EPYC Zen 4). So middling buffers share chunks of huge pages; a chunk is
// given back when its last buffer is. Buffers may be released from any thread and after the HostMemory.
//   HostMemory memory; Buffer b = memory.allocate(bytes);
#pragma once

#include <cstddef>

#include "tensor/tensor.h"

namespace lockstep {

class HostMemory {
 public:
  HostMemory() = default;
  ~HostMemory();
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  Buffer allocate(size_t bytes);  // 64-byte aligned, contents undefined; Error (environment) where there is no memory

 private:
  std::byte* chunk_ = nullptr;  // the one being filled; it begins with its count of users, of which this is one
  size_t used_ = 0;
};

}  // namespace lockstep
