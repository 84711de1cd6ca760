// A block's tools for one row of logits, and the border of a prefix in order: for top_k, top_p, and the most likely tokens.
#pragma once

#include <cstdint>

namespace lockstep::kernels {

namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr float kInfinity = __builtin_huge_valf();

// All threads get the reduction of all values, in one fixed tree. `scratch` [kWarps] is free again at the next barrier.
template <class T, class Op>
__device__ T reduce(T value, Op op, T* scratch) {
  for (int offset = 16; offset > 0; offset /= 2) value = op(value, __shfl_xor_sync(0xFFFFFFFFu, value, offset));
  __syncthreads();
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  value = scratch[0];
  for (int w = 1; w < kWarps; ++w) value = op(value, scratch[w]);
  return value;
}

__device__ uint64_t larger_key(uint64_t a, uint64_t b) { return a > b ? a : b; }
__device__ double sum_of(double a, double b) { return __dadd_rn(a, b); }
__device__ int either(int a, int b) { return a | b; }

// Larger logits have larger keys; -0 is 0.
__device__ uint32_t order_key(float logit) {
  const uint32_t u = __float_as_uint(logit + 0.0f);
  return u & 0x80000000u ? ~u : u | 0x80000000u;
}
// Larger is better: by value, then by the lower id.
__device__ uint64_t ranked(float value, int token) { return static_cast<uint64_t>(order_key(value)) << 32 | (0xFFFFFFFFu - token); }
__device__ int token_of(uint64_t ranked) { return static_cast<int>(0xFFFFFFFFu - static_cast<uint32_t>(ranked)); }

// Of the values of all threads before this one. `scratch` as in reduce; *total: of all.
__device__ unsigned long long sum_before(unsigned long long value, unsigned long long* scratch, unsigned long long* total) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  unsigned long long sum = value;
  for (int offset = 1; offset < 32; offset *= 2) {
    const unsigned long long below = __shfl_up_sync(0xFFFFFFFFu, sum, offset);
    if (lane >= offset) sum += below;
  }
  __syncthreads();
  if (lane == 31) scratch[warp] = sum;
  __syncthreads();
  *total = 0;
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) sum += scratch[w];
    *total += scratch[w];
  }
  return sum - value;
}

constexpr int kBins = 2048;  // of y, 64 a unit; the last one has all that is left
constexpr int kList = 1024;

struct Shared {
  union {
    double d[kWarps];
    uint64_t u[kWarps];
    unsigned long long l[kWarps];
    int i[kWarps];
  } reduce;
  uint32_t counts[kBins];
  unsigned long long masses[kBins];
  uint64_t list[kList];
  uint32_t key, id_limit, left, n_list, n_top;
  int bin;
  unsigned long long mass_left, mass_above;
};

// ---- the border of a prefix in order ----

// Kept: tokens with a larger key, and those with this key up to this id.
struct Cut {
  uint32_t key = 0, id_limit = 0xFFFFFFFFu;
  __device__ bool keeps(uint32_t k, int token) const { return k > key || (k == key && static_cast<uint32_t>(token) <= id_limit); }
};

constexpr double kMassUnit = 0x1p42;

struct Softened {
  const float* x;
  float max, temperature;
  __device__ float y(int i) const { return __fdiv_rn(__fsub_rn(x[i], max), temperature); }
  __device__ float p(int i) const { return expf(y(i)); }
  __device__ unsigned long long mass(int i) const { return static_cast<unsigned long long>(static_cast<double>(p(i)) * kMassUnit); }
};

// The first `want` tokens in order, or the shortest prefix with a mass of `want_mass` if want is 0; both are there. *mass: of the prefix, if
// asked for. Eight bits of the order at a time: four passes, and four more where equal logits are parted.
__device__ Cut find_cut_by_digits(Shared& s, const Softened& row, int vocab, uint32_t want, unsigned long long want_mass, bool masses,
                        unsigned long long* mass) {
  Cut cut;
  if (threadIdx.x == 0) s.key = 0, s.left = want, s.mass_left = want_mass, s.mass_above = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int i = threadIdx.x; i < 256; i += kThreads) s.counts[i] = 0, s.masses[i] = 0;
    __syncthreads();
    const uint32_t prefix = s.key;
    for (int i = threadIdx.x; i < vocab; i += kThreads) {
      const uint32_t key = order_key(row.x[i]);
      if (shift < 24 && (key ^ prefix) >> (shift + 8) != 0) continue;
      atomicAdd(&s.counts[key >> shift & 255], 1u);
      if (masses) atomicAdd(&s.masses[key >> shift & 255], row.mass(i));
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      int bin = 255, last = -1;
      for (;; --bin) {  // until the border lies in this bin; the last bin that holds a token if there is none
        if (s.counts[bin] > 0) last = bin;
        if (bin == 0 || (want > 0 ? s.counts[bin] >= s.left : s.counts[bin] > 0 && s.masses[bin] >= s.mass_left)) break;
        s.left -= want > 0 ? s.counts[bin] : 0;
        s.mass_left -= s.masses[bin];
        s.mass_above += s.masses[bin];
      }
      if (s.counts[bin] == 0 && last >= 0) {  // ran out: step back to the last one that holds a token, all of it
        bin = last;
        s.left = s.counts[bin];
        s.mass_left = s.masses[bin];
        s.mass_above -= s.masses[bin];
      }
      s.key = prefix | static_cast<uint32_t>(bin) << shift;
      if (shift == 0) {  // tokens of one logit, and so of one mass
        const uint32_t n_equal = s.counts[bin];
        const unsigned long long each = s.masses[bin] / (n_equal > 0 ? n_equal : 1);
        uint32_t n = s.left;
        if (want == 0) n = each > 0 ? static_cast<uint32_t>((s.mass_left + each - 1) / each) : 1;
        n = n < 1 ? 1 : n > n_equal ? n_equal : n;
        s.left = n < n_equal ? n : 0;  // 0: all of them
        s.mass_above += n * each;
      }
    }
    __syncthreads();
  }
  cut.key = s.key;
  if (mass != nullptr) *mass = s.mass_above;
  if (s.left == 0) return cut;
  // Which of the equal ones: the id of the left-th, eight bits at a time.
  if (threadIdx.x == 0) s.id_limit = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int i = threadIdx.x; i < 256; i += kThreads) s.counts[i] = 0;
    __syncthreads();
    const uint32_t prefix = s.id_limit;
    for (int i = threadIdx.x; i < vocab; i += kThreads)
      if (order_key(row.x[i]) == cut.key && (shift == 24 || (static_cast<uint32_t>(i) ^ prefix) >> (shift + 8) == 0))
        atomicAdd(&s.counts[static_cast<uint32_t>(i) >> shift & 255], 1u);
    __syncthreads();
    if (threadIdx.x == 0) {
      int bin = 0;
      for (; bin < 255 && s.counts[bin] < s.left; ++bin) s.left -= s.counts[bin];
      s.id_limit = prefix | static_cast<uint32_t>(bin) << shift;
    }
    __syncthreads();
  }
  cut.id_limit = s.id_limit;
  return cut;
}

__device__ int bin_of(float y) {
  const float at = __fmul_rn(y, -64.0f);
  return at < kBins - 1 ? static_cast<int>(at) : kBins - 1;
}

// Largest first; n a power of two.
__device__ void sort_list(uint64_t* list, int n) {
  for (int size = 2; size <= n; size *= 2)
    for (int step = size / 2; step > 0; step /= 2) {
      __syncthreads();
      for (int i = threadIdx.x; i < n / 2; i += kThreads) {
        const int low = i / step * 2 * step + i % step, high = low + step;
        const bool falling = (low & size) == 0;
        const uint64_t a = list[low], b = list[high];
        if ((a < b) == falling) list[low] = b, list[high] = a;
      }
    }
  __syncthreads();
}

// The same by counting into bins of y, which are in the order of logits; the tokens of the bin where the border lies are sorted. Two passes.
__device__ Cut find_cut(Shared& s, const Softened& row, int vocab, uint32_t want, unsigned long long want_mass, bool masses,
                        unsigned long long* mass) {
  __syncthreads();  // whoever read s before
  for (int i = threadIdx.x; i < kBins; i += kThreads) s.counts[i] = 0, s.masses[i] = 0;
  for (int i = threadIdx.x; i < kList; i += kThreads) s.list[i] = 0;
  if (threadIdx.x == 0) s.n_list = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < vocab; i += kThreads) {
    const int bin = bin_of(row.y(i));
    atomicAdd(&s.counts[bin], 1u);
    if (masses) atomicAdd(&s.masses[bin], row.mass(i));
  }
  __syncthreads();

  constexpr int kMine = kBins / kThreads;
  const int first = threadIdx.x * kMine;
  unsigned long long n = 0, m = 0, total;
  for (int i = first; i < first + kMine; ++i) n += s.counts[i], m += s.masses[i];
  n = sum_before(n, s.reduce.l, &total);
  m = sum_before(m, s.reduce.l, &total);
  for (int i = first; i < first + kMine; ++i) {
    const bool here = want > 0 ? n < want && want <= n + s.counts[i] : m < want_mass && want_mass <= m + s.masses[i];
    if (here) s.bin = i, s.left = want > 0 ? static_cast<uint32_t>(want - n) : 0, s.mass_left = want_mass - m, s.mass_above = m;
    n += s.counts[i], m += s.masses[i];
  }
  __syncthreads();
  const int bin = s.bin, n_list = static_cast<int>(s.counts[bin]);
  __syncthreads();
  if (n_list > kList) return find_cut_by_digits(s, row, vocab, want, want_mass, masses, mass);

  for (int i = threadIdx.x; i < vocab; i += kThreads)
    if (bin_of(row.y(i)) == bin) s.list[atomicAdd(&s.n_list, 1u)] = ranked(row.x[i], i);
  int size = 2;
  while (size < n_list) size *= 2;
  sort_list(s.list, size);
  constexpr int kListed = kList / kThreads;
  const int begin = threadIdx.x * kListed;
  m = 0;
  for (int i = begin; masses && i < begin + kListed && i < n_list; ++i) m += row.mass(token_of(s.list[i]));
  m = sum_before(m, s.reduce.l, &total);
  for (int i = begin; i < begin + kListed && i < n_list; ++i) {
    const int token = token_of(s.list[i]);
    const unsigned long long its = masses ? row.mass(token) : 0;
    const bool here = want > 0 ? i + 1 == static_cast<int>(s.left) : m < s.mass_left && s.mass_left <= m + its;
    m += its;
    if (here) s.key = static_cast<uint32_t>(s.list[i] >> 32), s.id_limit = static_cast<uint32_t>(token), s.mass_above += m;
  }
  __syncthreads();
  if (mass != nullptr) *mass = s.mass_above;
  return {s.key, s.id_limit};
}

}  // namespace

}  // namespace lockstep::kernels
