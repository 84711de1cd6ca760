// The record of one line, as completions.jsonl holds it: one line of strict, compact UTF-8 JSON, the same bytes for the same
// work. No clock, host, layout or cache figure gets in. Not for where records go: journal and merge.
//   std::string json = success_record({.custom_id = "a", .endpoint = Endpoint::completions, ...}, choices);
//
// - Shapes are those of the OpenAI Batch and completion APIs; ids come from the digest of custom_id, `created` is 0.
// - Text that isn't UTF-8 gets U+FFFD for each bad part. U+2028 and U+2029 are escaped: some readers end a line there.
// - A logprob is the shortest decimal that gives back its f32. What is not finite, or is below, becomes -9999.0.
// - chat: a token that is not UTF-8 by itself is shown lossily, its `bytes` are the raw ones; `bytes` null: the token adds
// none.
// - completions, where there is no `bytes`: such a token is "bytes:\xf0\x9f", so that two of them stay apart. top_logprobs is
//   most likely first and has the sampled token too (k or k + 1 entries; {} for logprobs 0); of two tokens with the same text
//   the likelier one stays. text_offset counts code points of `text`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "records/completion.h"
#include "records/prompt_record.h"

namespace lockstep {

// How logprobs show a token.
struct TokenText {
  std::string text;
  std::string bytes;  // what it adds to the text, maybe a part of a character
};

struct RecordContext {
  std::string custom_id;
  Endpoint endpoint = Endpoint::completions;
  std::string model;
  std::function<TokenText(TokenId)> token_text;  // asked only where there are logprobs
  int64_t n_prompt_tokens = 0;                   // sum over prompts
};

// Choices in order of `choice`; none of them ended by an error.
std::string success_record(const RecordContext& context, const std::vector<Completion>& choices);

// Without the line number, since lines may move between runs.
std::string error_record(const std::string& custom_id, const Fault& fault);

// The final file's form of a record: "line N: " in front of an error's message; a success is as it was.
std::string error_record_at_line(std::string_view record, int64_t line);

}  // namespace lockstep
