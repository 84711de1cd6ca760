// The parameters of a request: names, types, ranges, and which of them are known but not built. One table each, in the .cpp.
// Not for prompts and messages (prompt_reader), nor for defaults, which the engine resolves.
//   ParameterReader reader(json, record); if (auto fault = reader.read(key, value)) ...; if (auto fault = reader.finish()) ...
//
// Ranges; a value outside is that line's fault, null means left out, 8.0 may stand for 8:
//   max_tokens, max_completion_tokens, min_tokens   [0, 2^31 - 1]   both maxima given: equal, or a fault; min <= max
//   temperature         [0, 2]       as OpenAI; 0 is greedy
//   top_p               (0, 1]       as vLLM: 0 would leave no candidate
//   top_k               [-1, 2^31 - 1]   -1 and 0: off
//   min_p               [0, 1]
//   presence_penalty, frequency_penalty   [-2, 2]
//   repetition_penalty  [0.01, 100]
//   n                   [1, 128]
//   seed                64-bit signed
//   logprobs            completions: [0, 20]; chat: true or false with top_logprobs [0, 20]
//   stop                a string or a list of at most 64, of 1 to 1024 bytes each; an empty one is a fault, [] means none
//   stop_token_ids      at most 1024 ids in [0, 2^31 - 1]
//   logit_bias          at most 1024 ids in [0, 2^31 - 1], to [-100, 100]
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "journal/json_line.h"
#include "records/prompt_record.h"

namespace lockstep {

inline constexpr int64_t kMaxTokenId = 2147483647;

class ParameterReader {
 public:
  ParameterReader(const JsonLine& json, PromptRecord& record) : json_(json), record_(record) {}

  // One member of the request, of any name but prompt and messages. An unknown name is a fault with a suggestion.
  std::optional<Fault> read(NodeId key, NodeId value);

  // What only shows between parameters: two maxima, top_logprobs without logprobs, ...
  std::optional<Fault> finish();

 private:
  std::optional<Fault> read_integer(std::string_view field, NodeId value, int64_t low, int64_t high,
                                    std::optional<int64_t>& target) const;
  std::optional<Fault> read_flag(std::string_view field, NodeId value, std::optional<bool>& target) const;
  std::optional<Fault> read_stop(NodeId value);
  std::optional<Fault> read_stop_token_ids(NodeId value);
  std::optional<Fault> read_logit_bias(NodeId value);
  std::optional<Fault> read_tools(NodeId value);

  const JsonLine& json_;
  PromptRecord& record_;
  std::optional<int64_t> max_completion_tokens_, top_logprobs_;
  std::optional<bool> chat_logprobs_, add_generation_prompt_, continue_final_message_, chat_echo_, stream_;
};

// For messages: "max_tokens: "8" is a string, expected an integer".
Fault wrong_type(const JsonLine& json, std::string_view field, NodeId value, std::string_view expected);
Result<TokenId> read_token_id(const JsonLine& json, const std::string& field, NodeId value);

}  // namespace lockstep
