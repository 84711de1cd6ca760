// One row of logits to one token, on the CPU. Its rules, all of them independent of threads and of other rows:
//   order      by logit, then by token id (lower first)
//   greedy     (temperature 0): the first in that order
//   otherwise  y = (logit - max) / temperature, p = e^y;
//              top_k keeps the first k; top_p then the shortest prefix whose mass reaches top_p times the mass kept so far (at
//              least one token); min_p then those with p >= min_p (p of the first is 1);
//              masses are sums of p in double: over the vocabulary in chunks of 256 where top_k is off, else in order;
//              of the kept, the token with the largest y + g(token) is drawn, g Gumbel noise from Philox (draw key; position,
//              token / 4, 0x5A4D, 0; word token mod 4): the draw depends on key, position and token alone.
//   logprobs   of the raw logits, before temperature and filters; entries of probability 0 are left out of `top`.
// Not for: penalties and biases (adjustments.h).
//   SampledToken t = sample_row(kernels, logits, vocab, row, scratch);
#pragma once

#include <cstdint>
#include <vector>

#include "ops/cpu/kernels.h"
#include "records/completion.h"
#include "records/step_batch.h"

namespace lockstep {

struct SamplerScratch {
  std::vector<float> y, p;           // [vocab]
  std::vector<uint64_t> band, kept;  // order keys: logit and token id in one integer
  std::vector<int32_t> ids;          // the kept tokens
  std::vector<float> kept_y;
};

// raw: as the model gave them, for the logprobs; adjusted: what is drawn from, the same array where nothing was adjusted.
SampledToken sample_row(const CpuKernels& kernels, const float* raw, const float* adjusted, int64_t vocab, const SampleRow& row,
                        SamplerScratch& scratch);

// The log-probability of a token that is known.
SampledToken score_row(const CpuKernels& kernels, const float* logits, int64_t vocab, const ScoreRow& row);

}  // namespace lockstep
