// What came out: sampled tokens of a step, and finished sequences on their way to the journal.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace lockstep {

// One row's outcome.
struct SampledToken {
  RequestId request = 0;
  TokenId token = 0;
  bool finite = true;                               // false: the logits held NaN or infinity; token is meaningless
  float logprob = 0;                                // of `token`, of the raw distribution; where n_logprobs >= 0
  std::vector<std::pair<TokenId, float>> top;       // [n_logprobs] most likely first, ties by lower id
};

enum class FinishReason : uint8_t { stop, length, error };

constexpr const char* name_of(FinishReason r) {
  return r == FinishReason::stop ? "stop" : r == FinishReason::length ? "length" : "error";
}

struct Completion {
  int64_t line = 0;
  int32_t choice = 0;
  FinishReason reason = FinishReason::length;
  std::string text;
  std::vector<TokenId> tokens;          // [n_generated] as sampled, EOS included
  std::vector<SampledToken> logprobs;   // [n_generated] or empty
  int32_t n_prompt = 0;
  int32_t n_cached = 0;                 // prompt tokens found in the prefix cache
  double admitted_s = 0, first_token_s = 0, done_s = 0;  // since the run began
};

}  // namespace lockstep
