// What a warp of 32 threads does together, and copies into shared memory that go on in the background: PTX, each with its one
// meaning. A test runs kernels on the host with its own versions of these (tests/kernels/on_host.h, which defines the guard).
//
// mma: of a 16 x 16 matrix A (rows), a 16 x 8 matrix B (columns) and 16 x 8 sums C, lane l holds with g = l / 4, t = 2 (l % 4):
//   a[0]: A[g][t, t+1]   a[1]: A[g+8][t, t+1]   a[2]: A[g][t+8, t+9]   a[3]: A[g+8][t+8, t+9]
//   b0: B[t, t+1][g]     b1: B[t+8, t+9][g]     c[0], c[1]: C[g][t, t+1]   c[2], c[3]: C[g+8][t, t+1]
#ifndef LOCKSTEP_KERNELS_WARP
#define LOCKSTEP_KERNELS_WARP

#include <cuda_bf16.h>

#include <cstdint>

namespace lockstep::kernels {

__device__ inline float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ inline uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ inline void copy_async(void* to, const void* from, bool valid) {  // 16 bytes, or zeros
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(valid ? 16 : 0));
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;"); }
template <int n>
__device__ inline void wait_copies() {  // all but the last n groups of this thread have arrived
  asm volatile("cp.async.wait_group %0;" ::"n"(n));
}

// Four 8 x 8 matrices whose rows lie at the addresses that lanes 8 j .. 8 j + 7 give; r[j] is row l / 4, columns t, t + 1 of
// matrix j, or of its transpose.
template <bool transposed>
__device__ inline void load_matrices(uint32_t (&r)[4], const __nv_bfloat16* row) {
  if constexpr (transposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row)));
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row)));
}

// True in one thread of the warp, all of which ask. sm_90 and later.
__device__ inline bool elected() {
  uint32_t y;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xFFFFFFFF;\nselp.b32 %0, 1, 0, p;\n}" : "=r"(y));
  return y != 0;
}

// An 8 x 8 matrix of which lane l holds row l / 4, columns 2 (l % 4) and the next: its transpose, held likewise.
__device__ inline uint32_t transposed(uint32_t pair) {
  uint32_t y;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(pair));
  return y;
}

__device__ inline void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace lockstep::kernels

#endif
