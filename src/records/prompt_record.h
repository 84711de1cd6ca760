// One line of the input, parsed and checked for types and ranges, before any default, template or tokenizer.
// A faulty line is a PromptRecord too: `fault` says why, and its record ends there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace lockstep {

enum class Endpoint : uint8_t { completions, chat_completions };

// A raw prompt: text, or token ids given by the user (never altered).
using PromptText = std::variant<std::string, std::vector<TokenId>>;

// What the line said; nullopt where it is silent or null.
struct RequestParams {
  std::optional<int64_t> max_tokens, min_tokens, n, top_k;
  std::optional<double> temperature, top_p, min_p;
  std::optional<double> presence_penalty, frequency_penalty, repetition_penalty;
  std::optional<int64_t> seed;
  std::optional<bool> ignore_eos, include_stop_str_in_output, echo;
  std::vector<std::string> stop;
  std::vector<TokenId> stop_token_ids;
  std::vector<std::pair<TokenId, float>> logit_bias;
  std::optional<int64_t> n_logprobs;  // completions: `logprobs`; chat: `logprobs` true gives `top_logprobs` or 0
};

struct PromptRecord {
  int64_t line = 0;       // physical line of the input, 1-based
  std::string custom_id;  // or `id`, or "line-N"
  Endpoint endpoint = Endpoint::completions;

  std::vector<PromptText> prompts;  // completions: one for each element of a list prompt
  bool prompt_is_list = false;

  std::string messages;              // chat: the JSON array, text parts of content lists joined
  std::string tools;                 // chat: JSON array or empty
  std::string chat_template_kwargs;  // chat: JSON object or empty
  bool add_generation_prompt = true;
  bool continue_final_message = false;

  std::string model;  // as the line names it; free unless --require-model
  RequestParams params;
  std::optional<Fault> fault;
};

}  // namespace lockstep
