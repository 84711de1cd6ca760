// A stream of one GPU.
#pragma once

#include <cuda_runtime.h>

#include "ops/cuda/cuda_check.h"

namespace lockstep {

class Stream {
 public:
  enum class Kind { usual, urgent };  // urgent: its blocks start before those that wait in usual streams
  explicit Stream(int device, Kind kind = Kind::usual) {
    check_cuda(cudaSetDevice(device), "choosing the GPU");
    int least = 0, greatest = 0;
    check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "asking for priorities");
    check_cuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, kind == Kind::urgent ? greatest : least),
               "creating a stream");
  }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }  // NOLINT: it is one

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace lockstep
