// kernels/warpgroup.cuh and barrier.cuh on the host, beside on_host.h: products read shared memory as the GPU does, by
// addresses whose bits 4 to 6 are swizzled with bits 7 to 9; sums go over k in order, as on_host.h's mma has them.
#pragma once

#include "tests/kernels/on_host.h"

#define LOCKSTEP_KERNELS_BARRIER
#define LOCKSTEP_KERNELS_WARPGROUP

namespace lockstep::kernels {

inline uint32_t shared_address(const void* p) { return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(p)); }

// A description is the address, and above it the bytes of a panel.
inline uint64_t matrix_at(const void* p, int panel_bytes) {
  return reinterpret_cast<uintptr_t>(p) | static_cast<uint64_t>(panel_bytes / 16) << 48;
}

inline float value_at(uint64_t matrix, unsigned row, unsigned column) {
  const uint64_t base = matrix & 0xFFFFFFFFFFFF, panel_bytes = (matrix >> 48) * 16;
  const uint64_t address = base + column / 64 * panel_bytes + row * 128 + column % 64 * 2;
  return __bfloat162float(*reinterpret_cast<const __nv_bfloat16*>(address ^ (address >> 7 & 7) << 4));
}

// d[4 n + i] += sum over k of a(row, k) b(k, column), of this thread's rows and columns.
template <size_t n, class A, class B>
void add_products_of(float (&d)[n], bool add, const A& a, const B& b) {
  const unsigned lane = threadIdx.x % 32, t = lane % 4 * 2;
  for (unsigned i = 0; i < n; ++i) {
    if (!add) d[i] = 0;
    for (unsigned k = 0; k < 16; ++k) d[i] += a(lane / 4 + i % 4 / 2 * 8, k) * b(k, i / 4 * 8 + t + i % 2);
  }
}

inline void wgmma_64(float (&d)[32], uint64_t a, uint64_t b, bool add) {
  const unsigned first = threadIdx.x / 32 % 4 * 16;  // row of the warp
  add_products_of(
      d, add, [&](unsigned row, unsigned k) { return value_at(a, first + row, k); },
      [&](unsigned k, unsigned column) { return value_at(b, column, k); });
}

template <size_t n>
void wgmma_values(float (&d)[n], const uint32_t (&a)[4], uint64_t b, bool add) {
  add_products_of(d, add, LeftMatrix(a), [&](unsigned k, unsigned column) { return value_at(b, k, column); });
}

inline void wgmma_begin() {}
inline void wgmma_end() { on_host::all_lanes(0); }  // all have read before one of them says so
inline void show_to_wgmma() {}
template <int n>
void give_registers() {}
template <int n>
void take_registers() {}

// What copy_bulk brings arrives when it is waited for, and what was there is gone from when it is asked for.
inline int n_bulk_copies = 0;  // on the way
struct Barrier {
  int n_arrivals = 0, n_here = 0, n_rounds = 0, n_bytes = 0;  // n_bytes: to come in this round
  void* to = nullptr;
  const void* from = nullptr;
  void init(int n) { *this = {}, n_arrivals = n; }
  void arrive() {
    ++n_here;
    complete();
  }
  void arrive_and_expect(int bytes) {
    if (n_bytes != 0) throw std::logic_error("one copy at a time");
    n_bytes = bytes, ++n_here;
  }
  void complete() {
    if (n_here == n_arrivals && n_bytes == 0) n_here = 0, ++n_rounds;
  }
  // As the GPU's: it knows whether the round is even or odd, so waiting for the one before last would not be seen.
  void wait(int n) {
    while ((n_rounds & 1) == (n & 1)) {
      if (to == nullptr) {
        on_host::yield();
        continue;
      }
      std::memcpy(std::exchange(to, nullptr), from, static_cast<size_t>(std::exchange(n_bytes, 0)));
      --n_bulk_copies;
      complete();
    }
  }
};
inline void show_barriers() {}
inline void copy_bulk(void* to, const void* from, int n_bytes, Barrier& arrived) {
  if (arrived.n_bytes != n_bytes || arrived.to != nullptr) throw std::logic_error("a copy that its barrier doesn't expect");
  if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | static_cast<uintptr_t>(n_bytes)) % 16 != 0)
    throw std::logic_error("a copy not of 16 bytes each");
  std::memset(to, 0xFF, static_cast<size_t>(n_bytes));  // NaN
  arrived.to = to, arrived.from = from, ++n_bulk_copies;
}

}  // namespace lockstep::kernels
