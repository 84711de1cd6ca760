#include "base/error.h"
#include "journal/prompt_reader.h"

namespace lockstep {

namespace {

// What the engine can't follow yet; a line goes when the engine learns it.
struct Unsupported {
  const char* name;
  bool (*used)(const PromptRecord&);
};
constexpr Unsupported kUnsupported[] = {
    {"n", [](const PromptRecord& r) { return r.params.n.value_or(1) != 1; }},
    {"min_tokens", [](const PromptRecord& r) { return r.params.min_tokens.value_or(0) != 0; }},
    {"min_p", [](const PromptRecord& r) { return r.params.min_p.value_or(0) != 0; }},
    {"presence_penalty", [](const PromptRecord& r) { return r.params.presence_penalty.value_or(0) != 0; }},
    {"frequency_penalty", [](const PromptRecord& r) { return r.params.frequency_penalty.value_or(0) != 0; }},
    {"repetition_penalty", [](const PromptRecord& r) { return r.params.repetition_penalty.value_or(1) != 1; }},
    {"logit_bias", [](const PromptRecord& r) { return !r.params.logit_bias.empty(); }},
    {"stop_token_ids", [](const PromptRecord& r) { return !r.params.stop_token_ids.empty(); }},
    {"include_stop_str_in_output", [](const PromptRecord& r) { return r.params.include_stop_str_in_output.value_or(false); }},
    {"echo", [](const PromptRecord& r) { return r.params.echo.value_or(false); }},
    {"continue_final_message", [](const PromptRecord& r) { return r.continue_final_message; }},
    {"chat_template_kwargs", [](const PromptRecord& r) { return !r.chat_template_kwargs.empty(); }},
    {"tools", [](const PromptRecord& r) { return !r.tools.empty(); }},
};

}  // namespace

std::optional<Fault> unsupported_parameter(const PromptRecord& record) {
  for (const Unsupported& row : kUnsupported)
    if (row.used(record)) return Fault{"unsupported_parameter", concat(row.name, " is not supported by this version")};
  return std::nullopt;
}

}  // namespace lockstep
