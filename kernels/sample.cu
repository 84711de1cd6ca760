// One block a row. Greedy reads the row once (4 bytes a token): memory decides. top_k and top_p find their border by counting, eight bits of
// the order at a time: four more passes, from L2 mostly.
#include "kernels/sample.h"

#include <cassert>

namespace lockstep::kernels {

// ---- a block's tools ----

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

struct Shared {
  union {
    float f[kWarps];
    double d[kWarps];
    uint64_t u[kWarps];
    int i[kWarps];
  } reduce;
  uint32_t counts[256];
  unsigned long long masses[256];
  uint32_t key, id_limit, left, n_top;
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

// The first `want` tokens in order, or the shortest prefix with a mass of `want_mass` if want is 0. *mass: of the prefix, if asked for.
__device__ Cut find_cut(Shared& s, const Softened& row, int vocab, uint32_t want, unsigned long long want_mass, bool masses,
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

// ---- drawing ----

__device__ uint4 philox(uint64_t key, uint4 c) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint32_t high0 = __umulhi(0xD2511F53u, c.x), low0 = 0xD2511F53u * c.x;
    const uint32_t high1 = __umulhi(0xCD9E8D57u, c.z), low1 = 0xCD9E8D57u * c.z;
    c = {high1 ^ c.y ^ k0, low1, high0 ^ c.w ^ k1, low0};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

// Gumbel noise: -log(-log u), u in (0, 1) from 32 bits.
__device__ float noise(const DrawRule& rule, int token) {
  const uint4 words = philox(rule.key, {static_cast<uint32_t>(rule.position), static_cast<uint32_t>(token) / 4, 0x5A4Du, 0u});
  const uint32_t word = token % 4 == 0 ? words.x : token % 4 == 1 ? words.y : token % 4 == 2 ? words.z : words.w;
  return static_cast<float>(-log(-log((static_cast<double>(word) + 0.5) * 0x1p-32)));
}

constexpr float kLargestNoise = 23;  // > -log(-log(1 - 2^-33))

__device__ int draw(Shared& s, const float* x, int vocab, const DrawRule& rule, float max) {
  const Softened row{x, max, rule.temperature};
  Cut cut;
  const bool by_k = rule.top_k > 0 && rule.top_k < vocab;
  if (by_k || rule.top_p < 1) {
    unsigned long long mass = 0;
    if (by_k) cut = find_cut(s, row, vocab, rule.top_k, 0, rule.top_p < 1, &mass);
    if (rule.top_p < 1) {
      if (!by_k) {
        unsigned long long mine = 0;
        for (int i = threadIdx.x; i < vocab; i += kThreads) mine += row.mass(i);
        mass = reduce<uint64_t>(mine, [](uint64_t a, uint64_t b) { return a + b; }, s.reduce.u);
      }
      const auto needed = static_cast<unsigned long long>(ceil(static_cast<double>(rule.top_p) * static_cast<double>(mass)));
      cut = find_cut(s, row, vocab, 0, needed > 0 ? needed : 1, true, nullptr);
    }
  }
  float best_value = -kInfinity;
  uint64_t best = 0;
  for (int i = threadIdx.x; i < vocab; i += kThreads) {
    const float y = row.y(i);
    if (y + kLargestNoise < best_value || x[i] == -kInfinity || !cut.keeps(order_key(x[i]), i) || expf(y) < rule.min_p) continue;
    const float value = __fadd_rn(y, noise(rule, i));
    const uint64_t candidate = ranked(value, i);
    if (candidate > best) best = candidate, best_value = value;
  }
  return token_of(reduce<uint64_t>(best, larger_key, s.reduce.u));
}

// ---- log-probabilities ----

__device__ void add_logprobs(Shared& s, const float* x, int vocab, float max, int token, int n_top, DrawnRow& out, TopEntry* top) {
  double mine = 0;
  for (int i = threadIdx.x; i < vocab; i += kThreads) mine = __dadd_rn(mine, static_cast<double>(expf(__fsub_rn(x[i], max))));
  const double log_sum = log(reduce<double>(mine, sum_of, s.reduce.d));
  const auto logprob = [&](float logit) { return static_cast<float>(static_cast<double>(logit) - static_cast<double>(max) - log_sum); };
  out.logprob = logprob(x[token]);
  out.n_top = 0;
  n_top = n_top < vocab ? n_top : vocab;
  if (n_top <= 0) return;
  const Cut cut = find_cut(s, {x, max, 1.0f}, vocab, n_top, 0, false, nullptr);
  if (threadIdx.x == 0) s.n_top = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < vocab; i += kThreads)
    if (cut.keeps(order_key(x[i]), i) && x[i] > -kInfinity) top[atomicAdd(&s.n_top, 1u)] = {i, logprob(x[i])};
  __syncthreads();
  out.n_top = static_cast<int32_t>(s.n_top);
}

// The largest logit and its token; false if there is a NaN, a +infinity, or nothing above -infinity.
__device__ bool find_max(Shared& s, const float* x, int vocab, float* max, int* token) {
  int faulty = 0;
  uint64_t best = 0;
  for (int i = threadIdx.x; i < vocab; i += kThreads) {
    faulty |= !(x[i] < kInfinity);
    best = larger_key(best, ranked(x[i], i));
  }
  faulty = reduce<int>(faulty, either, s.reduce.i);
  best = reduce<uint64_t>(best, larger_key, s.reduce.u);
  *token = token_of(best);
  *max = x[*token < vocab ? *token : 0];
  return faulty == 0 && *max > -kInfinity;
}

// ---- kernels ----

__global__ void __launch_bounds__(kThreads)
    sample_rows(const float* logits, int64_t stride, const float* adjusted, int64_t adjusted_stride, int vocab, const DrawRule* rules,
                int32_t* slots, uint32_t* counts, DrawnRow* out, TopEntry* top) {
  __shared__ Shared s;
  const int row = blockIdx.x;
  const DrawRule rule = rules[row];
  const float* raw = logits + row * stride;
  const float* x = rule.adjusted >= 0 ? adjusted + rule.adjusted * adjusted_stride : raw;
  DrawnRow drawn{};
  float raw_max = 0, max = 0;
  int token = 0, raw_token = 0;
  bool finite = find_max(s, x, vocab, &max, &token);
  raw_max = max;
  if (rule.adjusted >= 0) finite = find_max(s, raw, vocab, &raw_max, &raw_token) && finite;
  drawn.finite = finite;
  if (finite) {
    if (rule.temperature > 0 && rule.top_k != 1) token = draw(s, x, vocab, rule, max);
    drawn.token = token;
    if (rule.n_top >= 0) add_logprobs(s, raw, vocab, raw_max, token, rule.n_top, drawn, top + static_cast<size_t>(row) * kMaxTop);
  }
  if (threadIdx.x > 0) return;
  out[row] = drawn;
  slots[rule.slot] = drawn.token;
  if (rule.adjusted >= 0 && finite) atomicAdd(&counts[static_cast<size_t>(rule.slot) * vocab + drawn.token], 1u);
}

__global__ void __launch_bounds__(kThreads)
    score_rows(const float* logits, int64_t stride, int vocab, const ScoreRule* rules, DrawnRow* out, TopEntry* top) {
  __shared__ Shared s;
  const int row = blockIdx.x;
  const float* x = logits + row * stride;
  DrawnRow scored{.token = rules[row].target};
  float max = 0;
  int token = 0;
  scored.finite = find_max(s, x, vocab, &max, &token);
  if (scored.finite) add_logprobs(s, x, vocab, max, scored.token, rules[row].n_top, scored, top + static_cast<size_t>(row) * kMaxTop);
  if (threadIdx.x == 0) out[row] = scored;
}

__global__ void __launch_bounds__(kThreads)
    adjust_rows(float* adjusted, const float* logits, int64_t stride, int vocab, const AdjustRule* rules, const Bias* biases,
                const int32_t* ends, const uint32_t* counts) {
  const AdjustRule rule = rules[blockIdx.x];
  const float* from = logits + rule.row * stride;
  float* to = adjusted + static_cast<size_t>(blockIdx.x) * vocab;
  const uint32_t* count = counts + static_cast<size_t>(rule.slot) * vocab;
  for (int i = threadIdx.x; i < vocab; i += kThreads) to[i] = from[i];
  __syncthreads();
  for (int i = rule.bias_begin + threadIdx.x; i < rule.bias_end; i += kThreads)
    to[biases[i].token] = __fadd_rn(to[biases[i].token], biases[i].value);
  __syncthreads();
  for (int i = threadIdx.x; i < vocab; i += kThreads) {
    const uint32_t n = count[i];
    if (n == 0) continue;
    float x = to[i];
    if (rule.repetition != 1) x = x > 0 ? __fdiv_rn(x, rule.repetition) : __fmul_rn(x, rule.repetition);
    if ((n & ~kInPrompt) > 0) {
      x = __fsub_rn(x, __fmul_rn(rule.frequency, static_cast<float>(n & ~kInPrompt)));
      x = __fsub_rn(x, rule.presence);
    }
    to[i] = x;
  }
  __syncthreads();
  for (int i = rule.ends_begin + threadIdx.x; i < rule.ends_end; i += kThreads) to[ends[i]] = -kInfinity;
}

__global__ void count_rows(uint32_t* counts, const int32_t* prompt, int n_prompt, const int32_t* completion, int n_completion) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n_prompt; i += gridDim.x * blockDim.x) atomicOr(&counts[prompt[i]], kInPrompt);
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n_completion; i += gridDim.x * blockDim.x) atomicAdd(&counts[completion[i]], 1u);
}

}  // namespace

// ---- launchers ----

cudaError_t sample(const float* logits, int64_t stride, const float* adjusted, int64_t adjusted_stride, int n_rows, int vocab,
                   const DrawRule* rules, int32_t* slots, uint32_t* counts, DrawnRow* out, TopEntry* top, cudaStream_t stream) {
  if (n_rows == 0) return cudaSuccess;
  sample_rows<<<n_rows, kThreads, 0, stream>>>(logits, stride, adjusted, adjusted_stride, vocab, rules, slots, counts, out, top);
  return cudaGetLastError();
}

cudaError_t score(const float* logits, int64_t stride, int n_rows, int vocab, const ScoreRule* rules, DrawnRow* out, TopEntry* top,
                  cudaStream_t stream) {
  if (n_rows == 0) return cudaSuccess;
  score_rows<<<n_rows, kThreads, 0, stream>>>(logits, stride, vocab, rules, out, top);
  return cudaGetLastError();
}

cudaError_t adjust(float* adjusted, const float* logits, int64_t stride, int vocab, const AdjustRule* rules, int n_rules, const Bias* biases,
                   const int32_t* ends, const uint32_t* counts, cudaStream_t stream) {
  if (n_rules == 0) return cudaSuccess;
  adjust_rows<<<n_rules, kThreads, 0, stream>>>(adjusted, logits, stride, vocab, rules, biases, ends, counts);
  return cudaGetLastError();
}

cudaError_t count_tokens(uint32_t* counts, int vocab, const int32_t* prompt, int n_prompt, const int32_t* completion, int n_completion,
                         cudaStream_t stream) {
  if (const auto error = cudaMemsetAsync(counts, 0, static_cast<size_t>(vocab) * sizeof(uint32_t), stream); error != cudaSuccess)
    return error;
  if (n_prompt + n_completion == 0) return cudaSuccess;
  count_rows<<<16, 256, 0, stream>>>(counts, prompt, n_prompt, completion, n_completion);
  return cudaGetLastError();
}

}  // namespace lockstep::kernels
