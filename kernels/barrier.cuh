// Barriers in shared memory, and copies whose arrival they tell (sm_90 and later). PTX, each with its one meaning. A test runs
// kernels on the host with its own versions of these (tests/kernels/warpgroup_on_host.h, which defines the guard).
//   if (lane == 0) barrier.init(1), show_barriers();  __syncwarp();
//   if (lane == 0) barrier.arrive_and_expect(4096), copy_bulk(to, from, 4096, barrier);  barrier.wait(0);
#ifndef LOCKSTEP_KERNELS_BARRIER
#define LOCKSTEP_KERNELS_BARRIER

#include <cstdint>

#include "kernels/warp.cuh"

namespace lockstep::kernels {

// A round is complete when all have arrived, and all bytes that they expect.
struct Barrier {
  uint64_t word;
  __device__ void init(int n_arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(this)), "r"(n_arrivals) : "memory");
  }
  __device__ void arrive() {
    asm volatile("{\n.reg .b64 t;\nmbarrier.arrive.shared::cta.b64 t, [%0];\n}" ::"r"(shared_address(this)) : "memory");
  }
  // arrive, and so many bytes are to come in this round.
  __device__ void arrive_and_expect(int n_bytes) {
    asm volatile("{\n.reg .b64 t;\nmbarrier.arrive.expect_tx.shared::cta.b64 t, [%0], %1;\n}" ::"r"(shared_address(this)),
                 "r"(n_bytes)
                 : "memory");
  }
  // Until round n, from 0, is complete. Of round -1 it always is.
  __device__ void wait(int n) {
    uint32_t done = 0;
    while (done == 0)
      asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.b32 %0, 1, 0, p;\n}"
                   : "=r"(done)
                   : "r"(shared_address(this)), "r"(n & 1)
                   : "memory");
  }
};

// Barriers that this thread made may now be used by copies.
__device__ inline void show_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// Into shared memory, for one thread to ask: a multiple of 16 bytes, from and to multiples of 16. What was there must have been
// read by then.
__device__ inline void copy_bulk(void* to, const void* from, int n_bytes, Barrier& arrived) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(to)),
      "l"(from), "r"(n_bytes), "r"(shared_address(&arrived))
      : "memory");
}

}  // namespace lockstep::kernels

#endif
