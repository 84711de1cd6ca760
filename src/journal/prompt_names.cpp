#include "journal/prompt_names.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/error.h"

namespace lockstep {

namespace {

// ---- tables ----

constexpr uint8_t kText = 1, kChat = 2, kBoth = 3;  // endpoints

// Read elsewhere (prompt_reader, prompt_params); here for suggestions and for parameters of the other endpoint.
struct ReadName {
  std::string_view name;
  uint8_t endpoints = kBoth;
};
constexpr ReadName kRead[] = {
    {"prompt", kText},
    {"messages", kChat},
    {"model"},
    {"max_tokens"},
    {"max_completion_tokens"},
    {"min_tokens"},
    {"temperature"},
    {"top_p"},
    {"top_k"},
    {"min_p"},
    {"seed"},
    {"n"},
    {"stop"},
    {"stop_token_ids"},
    {"include_stop_str_in_output"},
    {"ignore_eos"},
    {"logit_bias"},
    {"presence_penalty"},
    {"frequency_penalty"},
    {"repetition_penalty"},
    {"logprobs"},
    {"top_logprobs", kChat},
    {"echo"},
    {"stream"},
    {"add_generation_prompt", kChat},
    {"continue_final_message", kChat},
    {"chat_template_kwargs", kChat},
    {"tools", kChat},
};

// They can't change the text: any value passes, nothing is kept.
constexpr std::string_view kHarmless[] = {
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "stream_options",
    "priority",
    "request_id",
    "cache_salt",
    "parallel_tool_calls",
    "prediction",
};

// They would change the text or the answer and aren't built: only the neutral values pass, compared as compact JSON.
struct NeutralOnly {
  std::string_view name;
  std::string_view neutral, also_neutral = {};
  uint8_t endpoints = kBoth;
};
constexpr NeutralOnly kNeutralOnly[] = {
    {"best_of", "1"},
    {"suffix", "\"\""},
    {"response_format", "{\"type\":\"text\"}"},
    {"structured_outputs", ""},
    {"guided_json", ""},
    {"guided_regex", ""},
    {"guided_choice", ""},
    {"guided_grammar", ""},
    {"guided_decoding_backend", ""},
    {"guided_whitespace_pattern", ""},
    {"json_schema", ""},
    {"regex", ""},
    {"ebnf", ""},
    {"tool_choice", "\"auto\"", "\"none\""},
    {"functions", "[]"},
    {"function_call", "\"auto\"", "\"none\""},
    {"reasoning_effort", ""},
    {"include_reasoning", "true"},
    {"thinking_token_budget", ""},
    {"verbosity", "\"medium\""},
    {"modalities", "[\"text\"]"},
    {"audio", ""},
    {"web_search_options", ""},
    {"use_beam_search", "false"},
    {"length_penalty", "1"},
    {"early_stopping", "false"},
    {"do_sample", ""},
    {"typical_p", "1"},
    {"tfs_z", "1"},
    {"mirostat", "0"},
    {"dry_multiplier", "0"},
    {"xtc_probability", "0"},
    {"min_new_tokens", "0"},
    {"bad_words", "[]"},
    {"allowed_token_ids", ""},
    {"logits_processors", "[]"},
    {"logprob_token_ids", "[]"},
    {"prompt_logprobs", ""},
    {"prompt_embeds", ""},
    {"skip_special_tokens", "true"},
    {"spaces_between_special_tokens", "true"},
    {"truncate_prompt_tokens", ""},
    {"truncation_side", ""},
    {"add_special_tokens", "true", "", kText},
    {"add_special_tokens", "false", "", kChat},
    {"chat_template", ""},
    {"documents", "[]"},
    {"mm_processor_kwargs", "{}"},
    {"return_tokens_as_token_ids", "false"},
    {"return_token_ids", "false"},
    {"vllm_xargs", "{}"},
};

// Other libraries' names for what we know.
struct Alias {
  std::string_view name, ours;
};
constexpr Alias kAliases[] = {
    {"max_new_tokens", "max_tokens"},
    {"max_length", "max_tokens"},
    {"max_output_tokens", "max_tokens"},
    {"stop_strings", "stop"},
    {"stop_sequences", "stop"},
    {"num_return_sequences", "n"},
    {"typical", "typical_p"},
    {"random_seed", "seed"},
    {"input", "prompt"},
    {"text", "prompt"},
    {"conversation", "messages"},
    {"repeat_penalty", "repetition_penalty"},
};

// ---- help for messages ----

uint8_t mask_of(Endpoint endpoint) { return endpoint == Endpoint::chat_completions ? kChat : kText; }

// Edits (insert, delete, replace, swap neighbours) between two short names.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

// JSON text without the blanks between its parts.
std::string compact(std::string_view raw) {
  std::string out;
  bool in_string = false;
  for (size_t i = 0; i < raw.size(); ++i) {
    const char c = raw[i];
    if (in_string && c == '\\') {
      out += c;
      out += raw[++i];
      continue;
    }
    if (c == '"') in_string = !in_string;
    if (in_string || (c != ' ' && c != '\t' && c != '\r' && c != '\n')) out += c;
  }
  return out;
}

bool is_neutral(const JsonLine& json, NodeId value, std::string_view neutral) {
  if (neutral.empty()) return false;
  if (json.kind(value) != JsonKind::number) return json.raw(value).size() < 100 && compact(json.raw(value)) == neutral;
  double number = 0;
  const auto [end, error] = std::from_chars(neutral.data(), neutral.data() + neutral.size(), number);
  return error == std::errc{} && end == neutral.data() + neutral.size() && json.number(value) == number;
}

Fault unknown(const std::string& name) {
  std::string_view best;
  for (const Alias& alias : kAliases)
    if (alias.name == name) best = alias.ours;
  size_t least = std::min<size_t>(2, name.size() / 3) + 1;  // a short name needs to be closer
  const auto compare = [&](std::string_view known) {
    const size_t d = distance(name, known);
    if (d < least) least = d, best = known;
  };
  if (best.empty() && name.size() <= 40) {
    for (const ReadName& known : kRead) compare(known.name);
    for (const NeutralOnly& known : kNeutralOnly) compare(known.name);
    for (const std::string_view known : kHarmless) compare(known);
  }
  std::string message = concat("unknown parameter '", shown(name), "'");
  if (!best.empty()) message += concat(", did you mean '", best, "'?");
  return {"unknown_parameter", message};
}

}  // namespace

std::optional<Fault> judge_unread(const JsonLine& json, const std::string& name, NodeId value, Endpoint endpoint) {
  const bool is_null = json.kind(value) == JsonKind::null;
  if (std::find(std::begin(kHarmless), std::end(kHarmless), name) != std::end(kHarmless)) return std::nullopt;
  bool known = false;
  for (const NeutralOnly& row : kNeutralOnly) {
    if (row.name != name) continue;
    known = true;
    if ((row.endpoints & mask_of(endpoint)) &&
        (is_neutral(json, value, row.neutral) || is_neutral(json, value, row.also_neutral)))
      return std::nullopt;
  }
  for (const ReadName& row : kRead) {
    if (row.name != name) continue;
    if (is_null) return std::nullopt;
    return Fault{"invalid_request", concat(name, " belongs to ",
                                           path_of(row.endpoints == kChat ? Endpoint::chat_completions : Endpoint::completions),
                                           ", this is a request for ", path_of(endpoint))};
  }
  if (!known) return unknown(name);
  if (is_null) return std::nullopt;
  return Fault{"unsupported_parameter", concat(name, ": ", shown(json.raw(value)), " is not supported")};
}

}  // namespace lockstep
