// The kernels of sample.cu. One block a row; top_k and top_p find their border in sample_cut.cuh.
#pragma once

#include "kernels/sample.h"
#include "kernels/sample_cut.cuh"

namespace lockstep::kernels {

namespace {

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
__device__ float noise(uint32_t word) { return static_cast<float>(-log(-log((static_cast<double>(word) + 0.5) * 0x1p-32))); }

// No less, and cheap. Of u below 1 - 2^-16 the quick logarithm's error, 2^-21 at most, is a fortieth of -log u.
__device__ float most_noise(uint32_t word) {
  if (word >= 0xFFFF0000u) return 23;  // > -log(-log(1 - 2^-33))
  return -__logf(-__logf((static_cast<float>(word) + 0.5f) * 0x1p-32f)) + 0.05f;
}

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
  for (int quad = threadIdx.x; quad * 4 < vocab; quad += kThreads) {
    const uint4 four = philox(rule.key, {static_cast<uint32_t>(rule.position), static_cast<uint32_t>(quad), 0x5A4Du, 0u});
    const uint32_t words[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int i = quad * 4 + k;
      if (i >= vocab || x[i] == -kInfinity) continue;
      const float y = row.y(i);
      if (y + most_noise(words[k]) < best_value || !cut.keeps(order_key(x[i]), i) || expf(y) < rule.min_p) continue;
      const float value = __fadd_rn(y, noise(words[k]));
      const uint64_t candidate = ranked(value, i);
      if (candidate > best) best = candidate, best_value = value;
    }
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

}  // namespace lockstep::kernels
