// Words that GPUs of one node show each other: PTX. A test runs kernels on the host with its own versions of these (tests/kernels/on_host.h,
// which defines the guard).
#ifndef LOCKSTEP_KERNELS_SYSTEM
#define LOCKSTEP_KERNELS_SYSTEM

#include <cstdint>

namespace lockstep::kernels {

// What was written before `release` by this thread, or seen by it, is seen by whoever sees the word.
__device__ inline void release(uint32_t* word, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}
__device__ inline uint32_t acquire(const uint32_t* word) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}
__device__ inline uint64_t nanoseconds() {
  uint64_t t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}

}  // namespace lockstep::kernels

#endif
