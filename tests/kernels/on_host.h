// CUDA kernels on the host, for machines without a GPU: a block's threads are fibers of one thread, which change places where
// threads of a GPU wait for each other. Include it before a kernel's .cuh; it stands in for kernels/warp.cuh. What it proves is
// indices, layouts, barriers and the order of operations; not rates, nor the bits of a GPU's products (here: sums in order) and
// exponentials (here: exp2f).
//   on_host::launch(dim3(2), 64, [&] { kernel(args); });           // its blocks one after the other
//   on_host::together({{2, 64, [&] { kernel(args); }}, ...});      // several GPUs: all blocks at once, so no __shared__
// Copies in the background arrive when they are waited for, and not before, so that a missing wait is seen.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

#define LOCKSTEP_ON_HOST
#define LOCKSTEP_KERNELS_WARP
#define LOCKSTEP_KERNELS_SYSTEM
#undef __global__
#undef __device__
#undef __shared__
#undef __launch_bounds__
#define __global__
#define __device__
#define __shared__ static  // one for all fibers; where a kernel takes dynamic memory its test undoes this
#define __launch_bounds__(...)

namespace on_host {

struct Copy {
  void* to;
  const void* from;  // null: zeros
};

struct Fiber {
  ucontext_t context;
  bool done = false;
  uint64_t n_warp_meetings = 0, n_block_meetings = 0;
  std::vector<std::vector<Copy>> groups;  // committed
  std::vector<Copy> open;
};

struct Meeting {  // of a warp's threads, or a block's
  int n_here = 0;
  uint64_t n_held = 0;
  alignas(16) char words[2][32][16];  // what each lane brought to a meeting; a lane may be at most one meeting ahead
};

struct Launch {
  dim3 grid;
  unsigned n_threads = 0;
  std::function<void()> kernel;
};

struct Block {
  const Launch* launch = nullptr;
  uint3 index{};
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<Meeting> warps;
  Meeting all;
  unsigned current = 0;
};
inline Block* block = nullptr;
inline ucontext_t scheduler;
inline Fiber& self() { return *block->fibers[block->current]; }

}  // namespace on_host

inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;

namespace on_host {

inline void yield() { swapcontext(&self().context, &scheduler); }

inline void meet(Meeting& meeting, int n, uint64_t& mine) {
  ++mine;
  if (++meeting.n_here == n) meeting.n_here = 0, ++meeting.n_held;
  while (meeting.n_held < mine) yield();
}

inline Meeting& warp() { return block->warps[block->current / 32]; }

// Every lane's value.
template <class T>
std::array<T, 32> all_lanes(const T& value) {
  static_assert(sizeof(T) <= 16);
  Meeting& w = warp();
  const uint64_t at = self().n_warp_meetings % 2;
  std::memcpy(w.words[at][block->current % 32], &value, sizeof(T));
  meet(w, 32, self().n_warp_meetings);
  std::array<T, 32> all;
  for (int lane = 0; lane < 32; ++lane) std::memcpy(&all[static_cast<size_t>(lane)], w.words[at][lane], sizeof(T));
  return all;
}

inline void run_fiber() {
  block->launch->kernel();
  self().done = true;
  for (;;) yield();
}

// A fiber on stack number `number`, which a later one uses again.
inline std::unique_ptr<Fiber> make_fiber(size_t number) {
  constexpr size_t kStackBytes = 128 << 10;
  static std::vector<std::unique_ptr<char[]>> stacks;
  while (stacks.size() <= number) stacks.push_back(std::make_unique_for_overwrite<char[]>(kStackBytes));
  auto fiber = std::make_unique<Fiber>();
  getcontext(&fiber->context);
  fiber->context.uc_stack.ss_sp = stacks[number].get();
  fiber->context.uc_stack.ss_size = kStackBytes;
  makecontext(&fiber->context, run_fiber, 0);
  return fiber;
}

inline void run(std::vector<Block>& blocks, unsigned seed) {
  std::vector<std::pair<Block*, unsigned>> order;  // and thread
  for (Block& b : blocks) {
    if (b.launch->n_threads % 32 != 0) throw std::logic_error("whole warps only");
    b.warps.resize(b.launch->n_threads / 32);
    for (unsigned t = 0; t < b.launch->n_threads; ++t, order.emplace_back(&b, t - 1))
      b.fibers.push_back(make_fiber(order.size()));
  }
  std::minstd_rand random(seed);
  while (!order.empty()) {  // another order each time: a missing barrier shows
    std::shuffle(order.begin(), order.end(), random);
    for (const auto& [b, thread] : order) {
      block = b;
      b->current = thread;
      threadIdx = {thread, 0, 0}, blockIdx = b->index;
      blockDim = dim3(b->launch->n_threads), gridDim = b->launch->grid;
      swapcontext(&scheduler, &self().context);
    }
    std::erase_if(order, [](const auto& item) { return item.first->fibers[item.second]->done; });
  }
  block = nullptr;
}

inline void launch(dim3 grid, unsigned n_threads, const std::function<void()>& kernel) {
  const Launch launch{grid, n_threads, kernel};
  for (unsigned y = 0; y < grid.y; ++y)
    for (unsigned x = 0; x < grid.x; ++x) {
      std::vector<Block> one(1);
      one[0].launch = &launch, one[0].index = {x, y, 0};
      run(one, x + 1);
    }
}

inline void together(const std::vector<Launch>& launches, unsigned seed) {
  std::vector<Block> blocks;
  for (const Launch& launch : launches)
    for (unsigned y = 0; y < launch.grid.y; ++y)
      for (unsigned x = 0; x < launch.grid.x; ++x) {
        Block& b = blocks.emplace_back();
        b.launch = &launch, b.index = {x, y, 0};
      }
  run(blocks, seed);
}

}  // namespace on_host

// ---- what CUDA gives a thread ----

inline void __syncthreads() {
  on_host::meet(on_host::block->all, static_cast<int>(on_host::block->launch->n_threads), on_host::self().n_block_meetings);
}
inline void __syncwarp() { on_host::all_lanes(0); }
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return on_host::all_lanes(value)[static_cast<size_t>(threadIdx.x % 32 ^ static_cast<unsigned>(mask))];
}
inline bool __all_sync(unsigned, bool value) {
  const auto all = on_host::all_lanes(value);
  return std::all_of(all.begin(), all.end(), [](bool x) { return x; });
}
template <class T>
T __shfl_up_sync(unsigned, T value, int offset) {
  const auto all = on_host::all_lanes(value);
  const unsigned lane = threadIdx.x % 32, by = static_cast<unsigned>(offset);
  return all[lane >= by ? lane - by : lane];
}
template <class T>
T atomicAdd(T* to, T value) {
  return std::exchange(*to, *to + value);
}
template <class T>
T atomicOr(T* to, T value) {
  return std::exchange(*to, *to | value);
}
inline uint32_t __float_as_uint(float x) { return std::bit_cast<uint32_t>(x); }
inline uint32_t __umulhi(uint32_t a, uint32_t b) { return static_cast<uint32_t>(uint64_t{a} * b >> 32); }
inline float __logf(float x) { return std::log(x); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
using std::max;
using std::min;

inline void __threadfence_system() {}

// ---- kernels/system.cuh ----

namespace lockstep::kernels {

inline void release(uint32_t* word, uint32_t value) { *word = value; }
inline uint32_t acquire(const uint32_t* word) {
  on_host::yield();
  return *word;
}
inline uint64_t nanoseconds() {  // of a clock that goes on by one each time it is read
  static uint64_t now = 0;
  return ++now;
}

}  // namespace lockstep::kernels

// ---- kernels/warp.cuh ----

namespace lockstep::kernels {

inline float exp2_approx(float x) { return std::exp2(x); }

inline void copy_async(void* to, const void* from, bool valid) { on_host::self().open.push_back({to, valid ? from : nullptr}); }
inline void commit_copies() {
  on_host::Fiber& me = on_host::self();
  me.groups.push_back(std::move(me.open));
  me.open.clear();
}
template <int n>
void wait_copies() {
  auto& groups = on_host::self().groups;
  while (groups.size() > n) {
    for (const on_host::Copy& copy : groups.front())
      copy.from != nullptr ? std::memcpy(copy.to, copy.from, 16) : std::memset(copy.to, 0, 16);
    groups.erase(groups.begin());
  }
}

template <bool transposed>
void load_matrices(uint32_t (&r)[4], const __nv_bfloat16* row) {
  const auto rows = on_host::all_lanes(row);
  const unsigned lane = threadIdx.x % 32, g = lane / 4, t = lane % 4 * 2;
  for (unsigned j = 0; j < 4; ++j) {
    const auto bits = [&](unsigned k) {
      return uint32_t{__bfloat16_as_ushort(transposed ? rows[8 * j + t + k][g] : rows[8 * j + g][t + k])};
    };
    r[j] = bits(0) | bits(1) << 16;
  }
  on_host::all_lanes(0);  // all have read before anyone goes on and writes
}

inline bool elected() {
  on_host::all_lanes(0);
  return threadIdx.x % 32 == 0;
}

inline uint32_t transposed(uint32_t pair) {
  const auto all = on_host::all_lanes(pair);
  const unsigned lane = threadIdx.x % 32, g = lane / 4, t = lane % 4 * 2;
  const auto bits = [&](unsigned k) { return all[(t + k) * 4 + g / 2] >> 16 * (g % 2) & 0xFFFF; };
  return bits(0) | bits(1) << 16;
}

// Element k of a pair in one word.
inline float of_pair(uint32_t pair, unsigned k) {
  return __bfloat162float(__ushort_as_bfloat16(static_cast<unsigned short>(k % 2 == 0 ? pair : pair >> 16)));
}

// A [16, 16] of a warp's registers.
struct LeftMatrix {
  struct Quad {
    uint32_t x[4];
  };
  std::array<Quad, 32> lanes;
  explicit LeftMatrix(const uint32_t (&a)[4]) : lanes(on_host::all_lanes(Quad{{a[0], a[1], a[2], a[3]}})) {}
  float operator()(unsigned row, unsigned k) const { return of_pair(lanes[row % 8 * 4 + k % 8 / 2].x[k / 8 * 2 + row / 8], k); }
};

inline void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const LeftMatrix left(a);
  const auto bs = on_host::all_lanes(std::array<uint32_t, 2>{b0, b1});
  const unsigned lane = threadIdx.x % 32, g = lane / 4, t = lane % 4 * 2;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned row = g + i / 2 * 8, column = t + i % 2;
    for (unsigned k = 0; k < 16; ++k) c[i] += left(row, k) * of_pair(bs[column * 4 + k % 8 / 2][k / 8], k);
  }
}

}  // namespace lockstep::kernels
