#include "journal/prompt_reader.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "journal/prompt_names.h"
#include "journal/prompt_params.h"

namespace lockstep {

namespace {

constexpr size_t kMaxCustomIdBytes = 4096, kMaxPrompts = 16384, kMaxChoices = 128;

std::string line_name(int64_t line) { return "line-" + std::to_string(line); }
std::string indexed(const std::string& name, size_t i) { return name + "[" + std::to_string(i) + "]"; }

Fault request_fault(const std::string& message) { return {"invalid_request", message}; }

// ---- custom_id ----

struct LineId {
  std::string text;
  std::optional<Fault> fault;
};

bool is_batch(const JsonLine& json) {
  const NodeId root = json.root();
  for (NodeId key = json.first(root); key < json.after(root); key = json.after(key + 1))
    if (json.equals(key, "body") || json.equals(key, "url") || json.equals(key, "method")) return true;
  return false;
}

LineId id_of(const JsonLine& json, int64_t line, bool batch) {
  LineId none{line_name(line), std::nullopt};
  std::optional<NodeId> value = json.find(json.root(), "custom_id");
  const std::string_view name = value || batch ? "custom_id" : "id";
  if (!value && !batch) value = json.find(json.root(), "id");
  if (!value) {
    if (batch) none.fault = Fault{"invalid_custom_id", "custom_id is missing"};
    return none;
  }
  const std::string_view raw = json.raw(*value);
  if (json.kind(*value) == JsonKind::number && raw.find_first_of(".eE") == std::string_view::npos)
    return {std::string(raw), std::nullopt};
  const auto refuse = [&](std::string_view what) {
    none.fault = Fault{"invalid_custom_id", concat(name, ": ", shown(raw), what)};
    return none;
  };
  if (json.kind(*value) != JsonKind::string) return refuse(" is not a string");
  std::string text = json.string(*value);
  if (text.empty()) return refuse(" is empty");
  if (text.size() > kMaxCustomIdBytes) return refuse(concat(" is longer than ", kMaxCustomIdBytes, " bytes"));
  if (text.find('\0') != std::string::npos) return refuse(" contains NUL");
  return {std::move(text), std::nullopt};
}

// ---- prompt ----

class RequestReader {
 public:
  RequestReader(const JsonLine& json, PromptRecord& record) : json_(json), record_(record), parameters_(json, record) {}

  // The object with prompt or messages and parameters: `body`, or the line itself.
  std::optional<Fault> read(NodeId object, bool bare) {
    bool has_prompt = false;
    for (NodeId key = json_.first(object); key < json_.after(object); key = json_.after(key + 1)) {
      const NodeId value = key + 1;
      const bool is_null = json_.kind(value) == JsonKind::null;
      std::optional<Fault> fault;
      if (json_.equals(key, chat() ? "messages" : "prompt")) {
        has_prompt = !is_null;
        if (!is_null) fault = chat() ? read_messages(value) : read_prompt(value);
      } else if (json_.equals(key, "model")) {
        if (json_.kind(value) == JsonKind::string)
          record_.model = json_.string(value);
        else if (!is_null)
          fault = wrong_type(json_, "model", value, "a string");
      } else if (!(bare && (json_.equals(key, "custom_id") || json_.equals(key, "id")))) {
        fault = parameters_.read(key, value);
      }
      if (fault) return fault;
    }
    if (!has_prompt && bare) return request_fault("neither prompt nor messages");
    if (!has_prompt) return request_fault(concat(chat() ? "messages" : "prompt", " is missing"));
    return parameters_.finish();
  }

 private:
  bool chat() const { return record_.endpoint == Endpoint::chat_completions; }

  std::optional<Fault> read_prompt(NodeId prompt) {
    constexpr std::string_view expected = "a string, token ids, or a list of either";
    if (json_.kind(prompt) == JsonKind::string) return add_prompt("prompt", prompt);
    if (json_.kind(prompt) != JsonKind::array) return wrong_type(json_, "prompt", prompt, expected);
    if (json_.first(prompt) == json_.after(prompt)) return Fault{"empty_prompt", "prompt: [] has no tokens"};
    if (json_.kind(json_.first(prompt)) == JsonKind::number) return add_prompt("prompt", prompt);
    record_.prompt_is_list = true;
    for (NodeId n = json_.first(prompt); n < json_.after(prompt); n = json_.after(n)) {
      const std::string field = indexed("prompt", record_.prompts.size());
      if (record_.prompts.size() == kMaxPrompts)
        return request_fault(concat("prompt: more than ", kMaxPrompts, " in one line"));
      if (json_.kind(n) != JsonKind::string && json_.kind(n) != JsonKind::array)
        return wrong_type(json_, field, n, "a string or a list of token ids");
      if (auto fault = add_prompt(field, n)) return fault;
    }
    return std::nullopt;
  }

  std::optional<Fault> add_prompt(const std::string& field, NodeId value) {
    if (json_.kind(value) == JsonKind::string) {
      std::string text = json_.string(value);
      if (text.empty()) return Fault{"empty_prompt", concat(field, ": \"\" has no tokens")};
      record_.prompts.emplace_back(std::move(text));
      return std::nullopt;
    }
    std::vector<TokenId> ids;
    for (NodeId n = json_.first(value); n < json_.after(value); n = json_.after(n)) {
      const std::string_view raw = json_.raw(n);
      if (json_.kind(n) == JsonKind::number && raw.size() <= 9 &&
          raw.find_first_not_of("0123456789") == std::string_view::npos) {
        ids.push_back(static_cast<TokenId>(*json_.integer(n)));  // nearly always
        continue;
      }
      const Result<TokenId> id = read_token_id(json_, indexed(field, ids.size()), n);
      if (!id.ok()) return id.fault();
      ids.push_back(id.value());
    }
    if (ids.empty()) return Fault{"empty_prompt", concat(field, ": [] has no tokens")};
    record_.prompts.emplace_back(std::move(ids));
    return std::nullopt;
  }

  // Keeps the JSON text as it is, but for content lists, which become one string.
  std::optional<Fault> read_messages(NodeId messages) {
    if (json_.kind(messages) != JsonKind::array) return wrong_type(json_, "messages", messages, "a list of objects");
    if (json_.first(messages) == json_.after(messages)) return Fault{"empty_prompt", "messages: [] has no messages"};
    const std::string_view raw = json_.raw(messages);
    size_t copied = 0, index = 0;
    for (NodeId n = json_.first(messages); n < json_.after(messages); n = json_.after(n), ++index) {
      const std::string field = indexed("messages", index);
      if (json_.kind(n) != JsonKind::object) return wrong_type(json_, field, n, "an object");
      const auto role = json_.find(n, "role"), content = json_.find(n, "content");
      if (!role) return request_fault(concat(field, ".role is missing"));
      if (json_.kind(*role) != JsonKind::string) return wrong_type(json_, field + ".role", *role, "a string");
      if (json_.equals(*role, "")) return request_fault(concat(field, ".role is empty"));
      if (!content) {
        if (!json_.equals(*role, "assistant") || !(json_.find(n, "tool_calls") || json_.find(n, "function_call")))
          return request_fault(concat(field, ".content is missing"));
        continue;
      }
      if (json_.kind(*content) == JsonKind::string) continue;
      if (json_.kind(*content) != JsonKind::array)
        return wrong_type(json_, field + ".content", *content, "a string or a list of text parts");
      const size_t begin = json_.offset(*content) - json_.offset(messages);
      record_.messages += raw.substr(copied, begin - copied);
      copied = begin + json_.raw(*content).size();
      if (auto fault = join_parts(field + ".content", *content)) return fault;
    }
    record_.messages += raw.substr(copied);
    return std::nullopt;
  }

  std::optional<Fault> join_parts(const std::string& field, NodeId parts) {
    record_.messages += '"';
    size_t index = 0;
    for (NodeId n = json_.first(parts); n < json_.after(parts); n = json_.after(n), ++index) {
      const std::string part = indexed(field, index);
      if (json_.kind(n) != JsonKind::object) return wrong_type(json_, part, n, "an object");
      const auto type = json_.find(n, "type"), text = json_.find(n, "text");
      if (!type) return request_fault(concat(part, ".type is missing"));
      if (json_.kind(*type) != JsonKind::string || !json_.equals(*type, "text"))
        return Fault{"unsupported_parameter",
                     concat(part, ".type: ", shown(json_.raw(*type)), ", only text parts are supported")};
      if (!text) return request_fault(concat(part, ".text is missing"));
      if (json_.kind(*text) != JsonKind::string) return wrong_type(json_, part + ".text", *text, "a string");
      const std::string_view quoted = json_.raw(*text);
      record_.messages += quoted.substr(1, quoted.size() - 2);  // stays escaped
    }
    record_.messages += '"';
    return std::nullopt;
  }

  const JsonLine& json_;
  PromptRecord& record_;
  ParameterReader parameters_;
};

// ---- forms ----

std::optional<Fault> read_batch(const JsonLine& json, PromptRecord& record) {
  const NodeId root = json.root();
  for (NodeId key = json.first(root); key < json.after(root); key = json.after(key + 1))
    if (!json.equals(key, "custom_id") && !json.equals(key, "method") && !json.equals(key, "url") && !json.equals(key, "body"))
      return Fault{"unknown_parameter",
                   concat("unknown name ", shown(json.raw(key)), " beside custom_id, method, url and body")};
  const auto method = json.find(root, "method"), url = json.find(root, "url"), body = json.find(root, "body");
  if (!method) return request_fault("method is missing");
  if (json.kind(*method) != JsonKind::string || !json.equals(*method, "POST"))
    return request_fault(concat("method: ", shown(json.raw(*method)), ", expected \"POST\""));
  if (!url) return request_fault("url is missing");
  if (json.kind(*url) == JsonKind::string && json.equals(*url, path_of(Endpoint::chat_completions)))
    record.endpoint = Endpoint::chat_completions;
  else if (json.kind(*url) != JsonKind::string || !json.equals(*url, path_of(Endpoint::completions)))
    return Fault{"unsupported_url", concat("url: ", shown(json.raw(*url)), ", expected ", path_of(Endpoint::completions),
                                           " or ", path_of(Endpoint::chat_completions))};
  if (!body) return request_fault("body is missing");
  if (json.kind(*body) != JsonKind::object) return wrong_type(json, "body", *body, "an object");
  return RequestReader(json, record).read(*body, false);
}

std::optional<Fault> read_bare(const JsonLine& json, PromptRecord& record) {
  const bool has_messages = json.find(json.root(), "messages").has_value();
  if (has_messages && json.find(json.root(), "prompt")) return request_fault("both prompt and messages");
  record.endpoint = has_messages ? Endpoint::chat_completions : Endpoint::completions;
  return RequestReader(json, record).read(json.root(), true);
}

// Of a prompt's JSON text: one for each id of a list of ids, else one for four bytes.
int64_t about_tokens(std::string_view json) {
  const bool ids = json.size() > 1 && json[0] == '[' && json.find_first_of("\"{[", 1) == std::string_view::npos;
  if (ids) return 1 + std::count(json.begin(), json.end(), ',');
  return static_cast<int64_t>(json.size() + 3) / 4;
}

// A list of strings or of lists of ids is that many prompts; all else is one.
uint32_t n_prompts(const JsonLine& json, NodeId prompt) {
  if (json.kind(prompt) != JsonKind::array) return 1;
  uint32_t count = 0;
  for (NodeId n = json.first(prompt); n < json.after(prompt) && count < kMaxPrompts; n = json.after(n), ++count)
    if (json.kind(n) != JsonKind::string && json.kind(n) != JsonKind::array) return 1;
  return count;
}

uint32_t n_choices(const JsonLine& json, NodeId body) {
  const auto n = json.find(body, "n");
  if (!n || json.kind(*n) != JsonKind::number) return 1;
  return static_cast<uint32_t>(std::clamp<int64_t>(json.integer(*n).value_or(1), 1, kMaxChoices));
}

}  // namespace

PromptRecord parse_prompt(std::string_view text, int64_t line) {
  JsonLine json;
  return parse_prompt(json, text, line);
}

PromptRecord parse_prompt(JsonLine& json, std::string_view text, int64_t line) {
  PromptRecord record;
  record.line = line;
  record.custom_id = line_name(line);
  if ((record.fault = json.parse(text))) return record;
  if (json.kind(json.root()) != JsonKind::object) {
    record.fault = request_fault(concat("the line is ", shown(json.raw(json.root())), ", expected an object"));
    return record;
  }
  const bool batch = is_batch(json);
  LineId id = id_of(json, line, batch);
  record.custom_id = std::move(id.text);
  record.fault = std::move(id.fault);
  if (!record.fault) record.fault = batch ? read_batch(json, record) : read_bare(json, record);
  return record;
}

PromptOutline outline_prompt(JsonLine& json, std::string_view text, int64_t line) {
  PromptOutline outline{.custom_id = line_name(line)};
  if (json.parse(text) || json.kind(json.root()) != JsonKind::object) return outline;
  const bool batch = is_batch(json);
  outline.custom_id = id_of(json, line, batch).text;

  const std::optional<NodeId> body = batch ? json.find(json.root(), "body") : std::optional(json.root());
  if (!body || json.kind(*body) != JsonKind::object) return outline;
  const auto messages = json.find(*body, "messages");
  const auto prompt = messages ? messages : json.find(*body, "prompt");
  auto maximum = json.find(*body, "max_tokens");
  if (!maximum) maximum = json.find(*body, "max_completion_tokens");
  int64_t max_tokens = messages ? 1024 : 16;  // where the line is silent; a chat then goes to the end of the context
  if (maximum && json.kind(*maximum) == JsonKind::number) max_tokens = json.integer(*maximum).value_or(0);
  constexpr int64_t kMostTokens = 1 << 20;
  const std::string_view raw = prompt ? json.raw(*prompt) : std::string_view();
  outline.max_tokens = static_cast<uint32_t>(std::clamp<int64_t>(max_tokens, 0, kMostTokens));
  outline.cost = static_cast<uint32_t>(about_tokens(raw)) + outline.max_tokens;
  outline.n_answers = prompt ? n_prompts(json, *prompt) * n_choices(json, *body) : 0;
  size_t n_bytes = 64;
  for (uint32_t& hash : outline.beginnings)
    hash = static_cast<uint32_t>(hash64(raw.substr(0, std::exchange(n_bytes, n_bytes * 4))));
  return outline;
}

}  // namespace lockstep
