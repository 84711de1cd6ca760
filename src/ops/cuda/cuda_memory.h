// Memory that the GPU and the host share the use of: device buffers, pinned host buffers that grow, and a ring of the latter
// that waits until the GPU has read what was written before.
//   Staging staging(stream); std::byte* p = staging.begin(bytes); ... ; staging.send(device, bytes);
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <vector>

#include "ops/cuda/cuda_check.h"
#include "tensor/tensor.h"

namespace lockstep {

Buffer allocate_on_gpu(size_t bytes);  // 256-byte aligned; Error (environment) with the figures where there isn't enough
Buffer allocate_pinned(size_t bytes);

// At least so large; the old contents are lost if it has to grow, and nothing in the stream may use it any more then.
void grow(Buffer& buffer, size_t bytes, Buffer (*allocate)(size_t));

class Event {
 public:
  enum class Use { order, time };
  explicit Event(Use use = Use::order) {
    check_cuda(cudaEventCreateWithFlags(&event_, use == Use::time ? cudaEventDefault : cudaEventDisableTiming),
               "creating an event");
  }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(cudaStream_t stream) { check_cuda(cudaEventRecord(event_, stream), "recording an event"); }
  void wait() { check_cuda(cudaEventSynchronize(event_), "waiting for the GPU"); }
  bool is_over() const {
    const cudaError_t error = cudaEventQuery(event_);
    if (error != cudaErrorNotReady) return check_cuda(error, "asking the GPU"), true;
    cudaGetLastError();  // it isn't one
    return false;
  }
  void hold(cudaStream_t stream) const { check_cuda(cudaStreamWaitEvent(stream, event_), "ordering two streams"); }
  double seconds_since(const Event& begin) const {  // both over, both for time
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, begin.event_, event_), "timing the GPU");
    return 1e-3 * static_cast<double>(milliseconds);
  }

 private:
  cudaEvent_t event_ = nullptr;
};

// Host to device in the stream's order, without waiting for the GPU unless it is kSlots sends behind.
class Staging {
 public:
  explicit Staging(cudaStream_t stream) : stream_(stream), slots_(kSlots) {}
  std::byte* begin(size_t bytes);  // valid until send
  void send(void* to, size_t bytes);

 private:
  static constexpr size_t kSlots = 4;
  struct Slot {
    Buffer memory;
    Event sent;
  };
  cudaStream_t stream_;
  std::vector<Slot> slots_;
  size_t at_ = 0;
};

}  // namespace lockstep
