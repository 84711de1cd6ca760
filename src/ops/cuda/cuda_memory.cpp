#include "ops/cuda/cuda_memory.h"

#include <algorithm>

namespace lockstep {

Buffer allocate_on_gpu(size_t bytes) {
  void* data = nullptr;
  if (const cudaError_t error = cudaMalloc(&data, std::max<size_t>(bytes, 256)); error != cudaSuccess) {
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    cudaGetLastError();  // a failed allocation is no lasting error
    check_cuda(error, concat("allocating ", bytes, " bytes, ", free, " of ", total, " are free"));
  }
  return {data, bytes, +[](void* p) { cudaFree(p); }};
}

Buffer allocate_pinned(size_t bytes) {
  void* data = nullptr;
  check_cuda(cudaMallocHost(&data, std::max<size_t>(bytes, 256)), concat("pinning ", bytes, " bytes of host memory"));
  return {data, bytes, +[](void* p) { cudaFreeHost(p); }};
}

void grow(Buffer& buffer, size_t bytes, Buffer (*allocate)(size_t)) {
  if (buffer.bytes() >= bytes) return;
  buffer = Buffer();
  buffer = allocate(std::max(bytes, bytes + bytes / 2));
}

std::byte* Staging::begin(size_t bytes) {
  Slot& slot = slots_[at_];
  slot.sent.wait();
  grow(slot.memory, bytes, allocate_pinned);
  return slot.memory.data();
}

void Staging::send(void* to, size_t bytes) {
  Slot& slot = slots_[at_];
  check_cuda(cudaMemcpyAsync(to, slot.memory.data(), bytes, cudaMemcpyHostToDevice, stream_), "copying to the GPU");
  slot.sent.record(stream_);
  at_ = (at_ + 1) % kSlots;
}

}  // namespace lockstep
