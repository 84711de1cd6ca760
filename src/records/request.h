// One sequence to generate: what the scheduler and the sampler need, all defaults resolved. Made by engine/ from a
// PromptRecord (which may give several: list prompts, n > 1).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"

namespace lockstep {

struct SamplingParams {
  int32_t max_tokens = 16;  // clipped to the context: prompt + max_tokens <= max_model_len
  int32_t min_tokens = 0;
  float temperature = 1.0f;  // 0: greedy
  float top_p = 1.0f;        // in (0, 1]
  int32_t top_k = 0;         // 0: off
  float min_p = 0.0f;        // 0: off
  float presence_penalty = 0.0f, frequency_penalty = 0.0f, repetition_penalty = 1.0f;
  std::vector<std::pair<TokenId, float>> logit_bias;
  std::vector<TokenId> stop_token_ids;  // all that end this sequence: the request's, and the model's unless ignore_eos
  std::vector<std::string> stop;        // texts; the earliest match in the completion's text wins
  bool include_stop_str_in_output = false;
  int32_t n_logprobs = -1;       // -1: none, 0: of the chosen token only, k: and of the k most likely
  bool prompt_logprobs = false;  // of the prompt's tokens too (echo with logprobs); then max_tokens may be 0
  bool operator==(const SamplingParams&) const = default;
};

struct Request {
  RequestId id = 0;
  int64_t line = 0;             // of the input, 1-based; for the answer's way back
  int32_t choice = 0;           // index among the choices of its line
  std::vector<TokenId> prompt;  // [n_prompt] >= 1
  SamplingParams sampling;
  uint64_t draw_key = 0;  // Philox key of its draws: (seed, or run seed and custom_id; prompt index; sample index)
  bool operator==(const Request&) const = default;
};

void put(ByteWriter& w, const Request& request);
Request get_request(ByteReader& r);

}  // namespace lockstep
