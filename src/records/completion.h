// What came out: sampled tokens of a step, and finished sequences on their way to the journal.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace lockstep {

// One row's outcome: a token drawn, or a prompt token scored.
struct SampledToken {
  RequestId request = 0;
  TokenId token = 0;
  int32_t position = 0;                        // in its completion, or in its prompt if scored
  bool finite = true;                          // false: the logits held NaN or infinity; token is meaningless
  float logprob = 0;                           // of `token`, of the raw distribution; where n_logprobs >= 0
  std::vector<std::pair<TokenId, float>> top;  // [n_logprobs] most likely first, ties by lower id
};

enum class FinishReason : uint8_t { stop, length, error };

constexpr const char* name_of(FinishReason r) {
  return r == FinishReason::stop ? "stop" : r == FinishReason::length ? "length" : "error";
}

struct StepOutcome {
  std::vector<SampledToken> sampled;  // [n_samples] in order of rows
  std::vector<SampledToken> scored;   // [n_scores]
  double device_s =
      std::numeric_limits<double>::quiet_NaN();  // of a GPU that sampled, from the step's first kernel to its last
};

struct Completion {
  int64_t line = 0;
  int32_t choice = 0;
  FinishReason reason = FinishReason::length;
  std::string text;
  std::vector<TokenId> tokens;                // [n_generated] as sampled, EOS included
  std::vector<SampledToken> logprobs;         // [n_generated] or empty
  bool echo = false;                          // the answer shows the prompt in front of the completion
  std::string prompt_text;                    // if echo
  std::vector<TokenId> prompt;                // [n_prompt] if echo with logprobs
  std::vector<SampledToken> prompt_logprobs;  // [n_prompt - 1] if echo with logprobs: of prompt tokens 1, 2, ...
  int32_t n_prompt = 0;
  int32_t n_cached = 0;                                  // prompt tokens found in the prefix cache
  double admitted_s = 0, first_token_s = 0, done_s = 0;  // since the run began
};

}  // namespace lockstep
