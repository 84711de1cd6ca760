#include "journal/prompt_params.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "base/error.h"
#include "journal/prompt_names.h"

namespace lockstep {

namespace {

// ---- tables ----

constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();

struct IntegerParameter {
  std::string_view name;
  std::optional<int64_t> RequestParams::*field;
  int64_t low, high;
};
constexpr IntegerParameter kIntegers[] = {
    {"max_tokens", &RequestParams::max_tokens, 0, kInt32Max},
    {"min_tokens", &RequestParams::min_tokens, 0, kInt32Max},
    {"top_k", &RequestParams::top_k, -1, kInt32Max},
    {"n", &RequestParams::n, 1, 128},
    {"seed", &RequestParams::seed, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()},
};

struct NumberParameter {
  std::string_view name;
  std::optional<double> RequestParams::*field;
  double low, high;
  std::string_view range;
};
constexpr NumberParameter kNumbers[] = {
    {"temperature", &RequestParams::temperature, 0, 2, "[0, 2]"},
    {"top_p", &RequestParams::top_p, std::numeric_limits<double>::denorm_min(), 1, "(0, 1]"},
    {"min_p", &RequestParams::min_p, 0, 1, "[0, 1]"},
    {"presence_penalty", &RequestParams::presence_penalty, -2, 2, "[-2, 2]"},
    {"frequency_penalty", &RequestParams::frequency_penalty, -2, 2, "[-2, 2]"},
    {"repetition_penalty", &RequestParams::repetition_penalty, 0.01, 100, "[0.01, 100]"},
};

struct FlagParameter {
  std::string_view name;
  std::optional<bool> RequestParams::*field;
};
constexpr FlagParameter kFlags[] = {
    {"ignore_eos", &RequestParams::ignore_eos},
    {"include_stop_str_in_output", &RequestParams::include_stop_str_in_output},
};

constexpr size_t kMaxStops = 64, kMaxStopBytes = 1024, kMaxIds = 1024;
constexpr int64_t kMaxLogprobs = 20;
constexpr double kMaxBias = 100;

// ---- values ----

std::string_view name_of(JsonKind kind) {
  constexpr std::string_view names[] = {"null", "a boolean", "a number", "a string", "an array", "an object"};
  return names[static_cast<size_t>(kind)];
}

Fault invalid(const std::string& message) { return {"invalid_parameter", message}; }

Fault out_of_range(const JsonLine& json, std::string_view field, NodeId value, const std::string& range) {
  return invalid(concat(field, ": ", shown(json.raw(value)), " is not in ", range));
}

Result<int64_t> integer_in(const JsonLine& json, std::string_view field, NodeId value, int64_t low, int64_t high) {
  if (json.kind(value) != JsonKind::number) return wrong_type(json, field, value, "an integer");
  const std::optional<int64_t> integer = json.integer(value);
  if (!integer && json.raw(value).find_first_of(".eE") != std::string_view::npos)
    return invalid(concat(field, ": ", shown(json.raw(value)), " is not an integer"));
  if (!integer || *integer < low || *integer > high) return out_of_range(json, field, value, concat("[", low, ", ", high, "]"));
  return *integer;
}

}  // namespace

Fault wrong_type(const JsonLine& json, std::string_view field, NodeId value, std::string_view expected) {
  if (json.kind(value) == JsonKind::null) return invalid(concat(field, ": null, expected ", expected));
  return invalid(concat(field, ": ", shown(json.raw(value)), " is ", name_of(json.kind(value)), ", expected ", expected));
}

Result<TokenId> read_token_id(const JsonLine& json, const std::string& field, NodeId value) {
  const Result<int64_t> id = integer_in(json, field, value, 0, kMaxTokenId);
  if (!id.ok()) return id.fault();
  return static_cast<TokenId>(id.value());
}

// ---- reading ----

std::optional<Fault> ParameterReader::read(NodeId key, NodeId value) {
  const std::string name = json_.string(key);
  if (json_.kind(value) == JsonKind::null) return judge_unread(json_, name, value, record_.endpoint);
  RequestParams& params = record_.params;
  for (const IntegerParameter& p : kIntegers)
    if (p.name == name) return read_integer(name, value, p.low, p.high, params.*p.field);
  for (const NumberParameter& p : kNumbers) {
    if (p.name != name) continue;
    if (json_.kind(value) != JsonKind::number) return wrong_type(json_, name, value, "a number");
    const double number = json_.number(value);
    if (!(number >= p.low && number <= p.high)) return out_of_range(json_, name, value, std::string(p.range));
    params.*p.field = number;
    return std::nullopt;
  }
  for (const FlagParameter& p : kFlags)
    if (p.name == name) return read_flag(name, value, params.*p.field);

  const bool chat = record_.endpoint == Endpoint::chat_completions;
  if (name == "max_completion_tokens") return read_integer(name, value, 0, kInt32Max, max_completion_tokens_);
  if (name == "stop") return read_stop(value);
  if (name == "stop_token_ids") return read_stop_token_ids(value);
  if (name == "logit_bias") return read_logit_bias(value);
  if (name == "stream") return read_flag(name, value, stream_);
  if (name == "echo") return read_flag(name, value, chat ? chat_echo_ : params.echo);
  if (name == "logprobs" && !chat) return read_integer(name, value, 0, kMaxLogprobs, params.n_logprobs);
  if (name == "logprobs") return read_flag(name, value, chat_logprobs_);
  if (name == "top_logprobs" && chat) return read_integer(name, value, 0, kMaxLogprobs, top_logprobs_);
  if (name == "add_generation_prompt" && chat) return read_flag(name, value, add_generation_prompt_);
  if (name == "continue_final_message" && chat) return read_flag(name, value, continue_final_message_);
  if (name == "tools" && chat) return read_tools(value);
  if (name == "chat_template_kwargs" && chat) {
    if (json_.kind(value) != JsonKind::object) return wrong_type(json_, name, value, "an object");
    if (json_.after(value) > json_.first(value)) record_.chat_template_kwargs = json_.raw(value);
    return std::nullopt;
  }
  return judge_unread(json_, name, value, record_.endpoint);
}

std::optional<Fault> ParameterReader::finish() {
  RequestParams& params = record_.params;
  if (stream_.value_or(false)) return Fault{"unsupported_parameter", "stream: true is not supported, the answer is one object"};
  if (chat_echo_.value_or(false)) return Fault{"unsupported_parameter", "echo: true is not supported for chat"};
  if (params.max_tokens && max_completion_tokens_ && *params.max_tokens != *max_completion_tokens_)
    return invalid(
        concat("max_tokens: ", *params.max_tokens, " and max_completion_tokens: ", *max_completion_tokens_, " differ"));
  if (max_completion_tokens_) params.max_tokens = max_completion_tokens_;
  if (params.max_tokens && params.min_tokens.value_or(0) > *params.max_tokens)
    return invalid(concat("min_tokens: ", *params.min_tokens, " is more than max_tokens: ", *params.max_tokens));
  if (record_.endpoint == Endpoint::chat_completions) {
    if (top_logprobs_.value_or(0) > 0 && !chat_logprobs_.value_or(false))
      return invalid(concat("top_logprobs: ", *top_logprobs_, " needs logprobs: true"));
    if (chat_logprobs_.value_or(false)) params.n_logprobs = top_logprobs_.value_or(0);
    record_.continue_final_message = continue_final_message_.value_or(false);
    if (record_.continue_final_message && add_generation_prompt_.value_or(false))
      return invalid("continue_final_message and add_generation_prompt can't both be true");
    record_.add_generation_prompt = add_generation_prompt_.value_or(!record_.continue_final_message);
  }
  return std::nullopt;
}

std::optional<Fault> ParameterReader::read_integer(std::string_view field, NodeId value, int64_t low, int64_t high,
                                                   std::optional<int64_t>& target) const {
  const Result<int64_t> integer = integer_in(json_, field, value, low, high);
  if (!integer.ok()) return integer.fault();
  target = integer.value();
  return std::nullopt;
}

std::optional<Fault> ParameterReader::read_flag(std::string_view field, NodeId value, std::optional<bool>& target) const {
  if (json_.kind(value) != JsonKind::boolean) return wrong_type(json_, field, value, "true or false");
  target = json_.boolean(value);
  return std::nullopt;
}

std::optional<Fault> ParameterReader::read_stop(NodeId value) {
  const bool is_list = json_.kind(value) == JsonKind::array;
  if (!is_list && json_.kind(value) != JsonKind::string)
    return wrong_type(json_, "stop", value, "a string or a list of strings");
  const NodeId begin = is_list ? json_.first(value) : value;
  for (NodeId n = begin; n < json_.after(value); n = json_.after(n)) {
    const size_t index = record_.params.stop.size();
    const std::string field = is_list ? concat("stop[", index, "]") : "stop";
    if (index == kMaxStops) return invalid(concat("stop: more than ", kMaxStops, " strings"));
    if (json_.kind(n) != JsonKind::string) return wrong_type(json_, field, n, "a string");
    std::string text = json_.string(n);
    if (text.empty()) return invalid(concat(field, ": an empty string would match everywhere"));
    if (text.size() > kMaxStopBytes)
      return invalid(concat(field, ": ", text.size(), " bytes, at most ", kMaxStopBytes, " are allowed"));
    record_.params.stop.push_back(std::move(text));
  }
  return std::nullopt;
}

std::optional<Fault> ParameterReader::read_stop_token_ids(NodeId value) {
  if (json_.kind(value) != JsonKind::array) return wrong_type(json_, "stop_token_ids", value, "a list of token ids");
  auto& ids = record_.params.stop_token_ids;
  for (NodeId n = json_.first(value); n < json_.after(value); n = json_.after(n)) {
    if (ids.size() == kMaxIds) return invalid(concat("stop_token_ids: more than ", kMaxIds, " ids"));
    const Result<TokenId> id = read_token_id(json_, concat("stop_token_ids[", ids.size(), "]"), n);
    if (!id.ok()) return id.fault();
    ids.push_back(id.value());
  }
  return std::nullopt;
}

std::optional<Fault> ParameterReader::read_logit_bias(NodeId value) {
  if (json_.kind(value) != JsonKind::object) return wrong_type(json_, "logit_bias", value, "an object");
  auto& biases = record_.params.logit_bias;
  for (NodeId key = json_.first(value); key < json_.after(value); key = json_.after(key + 1)) {
    if (biases.size() == kMaxIds) return invalid(concat("logit_bias: more than ", kMaxIds, " tokens"));
    const std::string name = json_.string(key);
    int64_t id = -1;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), id);
    const bool canonical = error == std::errc{} && end == name.data() + name.size() && std::to_string(id) == name;
    if (!canonical || id < 0 || id > kMaxTokenId)
      return invalid(concat("logit_bias: key ", shown(json_.raw(key)), " is not a token id"));
    const std::string field = concat("logit_bias[", id, "]");
    if (json_.kind(key + 1) != JsonKind::number) return wrong_type(json_, field, key + 1, "a number");
    const double bias = json_.number(key + 1);
    if (!(bias >= -kMaxBias && bias <= kMaxBias)) return out_of_range(json_, field, key + 1, "[-100, 100]");
    biases.emplace_back(static_cast<TokenId>(id), static_cast<float>(bias));
  }
  std::sort(biases.begin(), biases.end());
  return std::nullopt;
}

std::optional<Fault> ParameterReader::read_tools(NodeId value) {
  if (json_.kind(value) != JsonKind::array) return wrong_type(json_, "tools", value, "a list of objects");
  size_t index = 0;
  for (NodeId n = json_.first(value); n < json_.after(value); n = json_.after(n), ++index)
    if (json_.kind(n) != JsonKind::object) return wrong_type(json_, concat("tools[", index, "]"), n, "an object");
  if (index > 0) record_.tools = json_.raw(value);
  return std::nullopt;
}

}  // namespace lockstep
