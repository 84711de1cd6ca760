// From rows of logits to tokens, and log-probabilities of tokens. Raw pointers, dims, stream last; no include of src/.
//
// Rules, independent of other rows: order by logit, then by lower id. Greedy (temperature 0) takes the first. Otherwise
// y = (logit - max) / temperature, p = e^y; top_k keeps the first k; top_p the shortest prefix whose mass reaches top_p times the mass kept
// so far; min_p those with p >= min_p; of the kept the token with the largest y + g(token) is drawn, g Gumbel noise from Philox (draw key;
// position, token / 4, 0x5A4D, 0; word token mod 4). Masses are sums of p in units of 2^-42, exact in any order. Log-probabilities are those
// of the raw logits.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace lockstep::kernels {

inline constexpr int kMaxTop = 128;  // most likely tokens that can be asked for

struct DrawRule {
  uint64_t key;
  int32_t slot, position;  // of the sample buffer; of the token in its completion
  int32_t top_k;           // 0: off
  int32_t adjusted;        // row of the adjusted logits, -1: none
  int32_t n_top;           // -1: no log-probability
  float temperature, top_p, min_p;
};

struct ScoreRule {
  int32_t target, n_top;
};

struct TopEntry {
  int32_t token;
  float logprob;
};
struct DrawnRow {
  int32_t token, finite, n_top;
  float logprob;
};

// logits, adjusted f32 with row strides; rules, out [n_rows]; top [n_rows, kMaxTop], in no order, n_top of them; slots: the sample buffer.
// counts [n_slots, vocab] or null: a token drawn in an adjusted row is counted.
cudaError_t sample(const float* logits, int64_t stride, const float* adjusted, int64_t adjusted_stride, int n_rows, int vocab,
                   const DrawRule* rules, int32_t* slots, uint32_t* counts, DrawnRow* out, TopEntry* top, cudaStream_t stream);

cudaError_t score(const float* logits, int64_t stride, int n_rows, int vocab, const ScoreRule* rules, DrawnRow* out, TopEntry* top,
                  cudaStream_t stream);

// ---- what a sequence's wishes and past do to its logits ----

inline constexpr uint32_t kInPrompt = 0x80000000u;  // in counts: the token is in the prompt; below: times in the completion

struct AdjustRule {
  int32_t row, slot;  // of logits; of counts
  float presence, frequency, repetition;
  int32_t bias_begin, bias_end;  // in biases
  int32_t ends_begin, ends_end;  // in ends: these tokens can't be drawn
};
struct Bias {
  int32_t token;
  float value;
};

// adjusted [n_rules, vocab] = the rows of logits, changed: bias, repetition, frequency, presence, then the ends, in this order.
cudaError_t adjust(float* adjusted, const float* logits, int64_t stride, int vocab, const AdjustRule* rules, int n_rules, const Bias* biases,
                   const int32_t* ends, const uint32_t* counts, cudaStream_t stream);

// Marks the tokens of a prompt in one slot's counts [vocab], and counts those of a completion.
cudaError_t count_tokens(uint32_t* counts, int vocab, const int32_t* prompt, int n_prompt, const int32_t* completion, int n_completion,
                         cudaStream_t stream);

}  // namespace lockstep::kernels
