// All-gathers among GPUs of one node that reach each other's memory: each rank stores its columns straight into the others'
// matrices (kernels/push.h). A matrix is made known the first time it is gathered, by all ranks together; it must be taken by
// cudaMalloc and stay where it is.
//   auto peers = PeerGather::make(host, stream);   if (peers) peers->all_gather(matrix, ranges);
// Large ones go beside what the stream computes: by copy engines, in a stream of their own, so that they need no
// multiprocessor.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.h"

namespace lockstep {

// Collective. Whether all ranks are on one machine, by what its kernel calls this boot.
bool on_one_machine(Communicator& host);

class PeerGather {
 public:
  // Collective over `host`, which outlives it and whose ranks are on one machine. Null on all ranks where one can't reach
  // another's memory.
  static std::unique_ptr<PeerGather> make(Communicator& host, cudaStream_t stream);
  ~PeerGather();
  PeerGather(const PeerGather&) = delete;
  PeerGather& operator=(const PeerGather&) = delete;

  // As Communicator::all_gather, in the stream. Error (communication) once a peer's word didn't come within
  // LOCKSTEP_COMM_TIMEOUT_S.
  void all_gather(TensorView matrix, std::span<const Range> ranges);

  // As the Communicator's. Not while the stream is recorded: then rows_beside is never reached.
  int64_t rows_beside() const;
  void begin_gather(TensorView matrix, Range rows, std::span<const Range> ranges);
  void end_gather();

 private:
  PeerGather(Communicator& host, cudaStream_t stream);
  // [ranks] where the others' memory of the same use is for this rank; empty on all where one doesn't reach it. Collective.
  std::vector<std::byte*> share(std::byte* mine);
  void push(const std::byte* columns, size_t row_bytes, size_t stride, int64_t rows, const std::vector<std::byte*>& matrices,
            size_t offset);
  const std::vector<std::byte*>& known(const TensorView& matrix, std::span<const Range> ranges);

  Communicator& host_;
  cudaStream_t stream_;
  uint64_t patience_ns_;
  std::byte* words_ = nullptr;           // flags [ranks], number of gathers, blocks done
  std::vector<std::byte*> peers_words_;  // [ranks]
  uint32_t* failed_ = nullptr;           // in host memory that the GPU writes
  std::map<std::byte*, std::vector<std::byte*>> matrices_;
  std::vector<void*> opened_;
  const std::byte* last_ = nullptr;  // the matrix gathered last

  static constexpr uint32_t kMostBegun = 4;
  cudaStream_t beside_ = nullptr;
  cudaEvent_t computed_ = nullptr, sent_[kMostBegun] = {};
  uint32_t n_begun_ = 0, n_ended_ = 0;
  CUresult (*write_word_)(CUstream, CUdeviceptr, cuuint32_t, unsigned) = nullptr;  // on all ranks or none
};

}  // namespace lockstep
