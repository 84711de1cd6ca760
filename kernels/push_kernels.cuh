// The kernel of push.cu.
#pragma once

#include "kernels/push.h"
#include "kernels/system.cuh"

namespace lockstep::kernels {

namespace {

__device__ inline void await_number(const uint32_t* flag, uint32_t number, uint64_t begin, uint64_t patience, uint32_t* failed) {
  while (static_cast<int32_t>(acquire(flag) - number) < 0)
    if (patience > 0 && nanoseconds() - begin > patience) {
      *failed = 1;
      return;
    }
}

// Each word is read once and stored once to each peer; a thread has several on their way.
template <class Word>
__device__ void push_words(const Push& a) {
  constexpr unsigned kAtOnce = 4;
  const unsigned words_a_row = static_cast<unsigned>(a.row_bytes / sizeof(Word)), n = words_a_row * static_cast<unsigned>(a.rows);
  const unsigned n_threads = gridDim.x * blockDim.x;
  for (unsigned begin = blockIdx.x * blockDim.x + threadIdx.x; begin < n; begin += kAtOnce * n_threads) {
    Word words[kAtOnce];
    size_t at[kAtOnce];
#pragma unroll
    for (unsigned j = 0; j < kAtOnce; ++j) {
      const unsigned i = begin + j * n_threads;
      if (i >= n) break;
      at[j] = i / words_a_row * a.stride + i % words_a_row * sizeof(Word);
      words[j] = *reinterpret_cast<const Word*>(a.mine + at[j]);
    }
#pragma unroll
    for (unsigned j = 0; j < kAtOnce; ++j) {
      if (begin + j * n_threads >= n) break;
      for (int p = 0; p < a.n_peers; ++p) *reinterpret_cast<Word*>(a.theirs[p] + at[j]) = words[j];
    }
  }
}

__global__ void push_columns(Push a) {
  switch (a.unit) {
    case 16: push_words<uint4>(a); break;
    case 8: push_words<uint2>(a); break;
    case 4: push_words<uint32_t>(a); break;
    default: push_words<uint16_t>(a);
  }
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x > 0) return;
  if (atomicAdd(a.n_blocks_done, 1u) + 1 < gridDim.x) return;
  // The last block: all of this rank's words are on their way, in order before what follows.
  *a.n_blocks_done = 0;
  const uint32_t number = *a.n_gathers + 1;
  *a.n_gathers = number;
  __threadfence_system();
  for (int p = 0; p < a.n_peers; ++p) release(a.their_flags[p], number);
  const uint64_t begin = nanoseconds();
  for (int p = 0; p < a.n_peers; ++p) await_number(a.flags[p], number, begin, a.patience, a.failed);
}

__global__ void await_numbers(Await a) {
  if (static_cast<int>(threadIdx.x) < a.n_peers)
    await_number(a.flags[threadIdx.x], a.number, nanoseconds(), a.patience, a.failed);
}

}  // namespace

}  // namespace lockstep::kernels
