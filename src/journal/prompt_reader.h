// One line of the input to a PromptRecord: every name, type and range checked, nothing quietly ignored. A fault of the line
// is a value in the record. Not for reading files (input_file), defaults, templates or tokens.
//   PromptRecord r = parse_prompt(input.read(line), line.line); if (r.fault) ...
//
// Two forms. Batch, known by method, url or body: {"custom_id", "method": "POST", "url", "body"}, all four required. Bare:
// "prompt" or "messages" with the parameters beside it, and custom_id, or id, or none (then "line-N").
// - custom_id: a string of 1 to 4096 bytes without NUL, or an integer, which stands for its digits.
// - Text parts of a content list are concatenated, with nothing between them.
// - Fault codes: invalid_json, line_too_long, invalid_request, invalid_custom_id, unsupported_url, empty_prompt,
//   invalid_parameter, unknown_parameter, unsupported_parameter. Parameters: prompt_params.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "journal/input_file.h"
#include "journal/json_line.h"
#include "records/prompt_record.h"

namespace lockstep {

PromptRecord parse_prompt(std::string_view text, int64_t line);

// The same, with memory that is used again for the next line.
PromptRecord parse_prompt(JsonLine& json, std::string_view text, int64_t line);

// What the scan of a file needs of a line; the id is the one that parse_prompt gives.
struct PromptOutline {
  std::string custom_id;
  uint32_t cost = 0;        // tokens of prompt and answer: ids, or a quarter of the text's bytes, plus max_tokens
  uint32_t n_answers = 0;   // 0: the line is no request
  uint32_t max_tokens = 0;  // of each answer, 2^20 at most
  Beginnings beginnings{};  // of that text
};
PromptOutline outline_prompt(JsonLine& json, std::string_view text, int64_t line);

}  // namespace lockstep
