#include "journal/output_record.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/utf8.h"

namespace lockstep {

namespace {

constexpr float kFloor = -9999.0f;  // vLLM's value for a logprob that is missing

// ---- JSON ----

void put_string(std::string& out, std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  size_t plain = 0;  // text before `at` and from here needs no change
  const auto replace = [&](size_t at, size_t length, std::string_view by) {
    out.append(text, plain, at - plain);
    out += by;
    plain = at + length;
  };
  for (size_t at = 0; at < text.size();) {
    const auto c = static_cast<unsigned char>(text[at]);
    if (c == '"' || c == '\\') {
      const char escape[] = {'\\', static_cast<char>(c)};
      replace(at, 1, {escape, 2});
    } else if (c < 0x20) {
      const char unicode[] = {'\\', 'u', '0', '0', kHex[c >> 4], kHex[c & 15]};
      replace(at, 1, c == '\n' ? "\\n" : c == '\r' ? "\\r" : c == '\t' ? "\\t" : std::string_view(unicode, 6));
    } else if (c >= 0x80) {
      const CodePoint point = decode_utf8(text, at);
      if (!point.valid)
        replace(at, point.length, "\xEF\xBF\xBD");
      else if (point.value == 0x2028 || point.value == 0x2029)
        replace(at, point.length, point.value == 0x2028 ? "\\u2028" : "\\u2029");
      at += point.length;
      continue;
    }
    ++at;
  }
  out.append(text, plain);
  out += '"';
}

void put_integer(std::string& out, int64_t value) {
  char digits[24];
  const auto [end, error] = std::to_chars(digits, digits + sizeof digits, value);
  check(error == std::errc{}, "an integer does not fit its buffer");
  out.append(digits, end);
}

void put_logprob(std::string& out, float value) {
  if (!std::isfinite(value) || value < kFloor) value = kFloor;
  if (value == 0) value = 0;  // not -0
  char text[80];              // the longest: -0. and 44 zeros before the digits of the smallest f32
  const auto [end, error] = std::to_chars(text, text + sizeof text, value, std::chars_format::fixed);
  const std::string_view number(text, static_cast<size_t>(end - text));
  check(error == std::errc{}, "a logprob does not fit its buffer");
  out += number;
  if (number.find('.') == std::string_view::npos) out += ".0";
}

template <class Items, class Put>
void put_list(std::string& out, const Items& items, const Put& put) {
  out += '[';
  const char* separator = "";
  for (const auto& item : items) {
    out += separator;
    put(item);
    separator = ",";
  }
  out += ']';
}

// ---- logprobs ----

void put_chat_token(std::string& out, const RecordContext& context, TokenId token, float logprob) {
  const TokenText shown = context.token_text(token);
  out += "{\"token\":";
  put_string(out, shown.text);
  out += ",\"logprob\":";
  put_logprob(out, logprob);
  out += ",\"bytes\":";
  if (shown.bytes.empty())
    out += "null";
  else
    put_list(out, shown.bytes, [&](char byte) { out += std::to_string(static_cast<unsigned char>(byte)); });
}

void put_chat_logprobs(std::string& out, const RecordContext& context, const Completion& choice) {
  out += "{\"content\":";
  put_list(out, choice.logprobs, [&](const SampledToken& sampled) {
    put_chat_token(out, context, sampled.token, sampled.logprob);
    out += ",\"top_logprobs\":";
    put_list(out, sampled.top, [&](const std::pair<TokenId, float>& top) {
      put_chat_token(out, context, top.first, top.second);
      out += '}';
    });
    out += '}';
  });
  out += ",\"refusal\":null}";
}

// A token as completions show it: its text, or "bytes:\x.." where it is a part of a character.
std::string name_of_token(const TokenText& shown) {
  if (find_invalid_utf8(shown.bytes) == std::string::npos) return shown.text;
  std::string name = "bytes:";
  for (const char byte : shown.bytes) {
    char hex[8];
    std::snprintf(hex, sizeof hex, "\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(byte)));
    name += hex;
  }
  return name;
}

void put_top_map(std::string& out, const RecordContext& context, const SampledToken& sampled, const std::string& name) {
  std::vector<std::pair<std::string, float>> entries;  // at most 21
  const auto add = [&](std::string&& key, float logprob) {
    const bool known = std::any_of(entries.begin(), entries.end(), [&](const auto& entry) { return entry.first == key; });
    if (!known) entries.emplace_back(std::move(key), logprob);
  };
  for (const auto& [token, logprob] : sampled.top) add(name_of_token(context.token_text(token)), logprob);
  if (!sampled.top.empty()) add(std::string(name), sampled.logprob);
  out += '{';
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i > 0) out += ',';
    put_string(out, entries[i].first);
    out += ':';
    put_logprob(out, entries[i].second);
  }
  out += '}';
}

// Where each token begins in `text`, in code points; a token that begins inside a character begins at that character.
std::vector<size_t> text_offsets(const std::vector<TokenText>& tokens, std::string_view text) {
  std::vector<size_t> offsets;
  const size_t n_text = count_code_points(lossy_utf8(text));
  size_t n_begun = 0;  // characters begun before this token
  for (const TokenText& token : tokens) {
    const bool inside = !token.bytes.empty() && (static_cast<unsigned char>(token.bytes[0]) & 0xC0) == 0x80;
    offsets.push_back(std::min(inside && n_begun > 0 ? n_begun - 1 : n_begun, n_text));
    n_begun += count_code_points(token.bytes);  // counts the bytes that begin a character
  }
  return offsets;
}

// All tokens that the text shows: with echo the prompt's first, of which nothing can be said of the very first one.
void put_text_logprobs(std::string& out, const RecordContext& context, const Completion& choice, std::string_view shown_text) {
  std::vector<const SampledToken*> rows;
  std::vector<TokenText> tokens;
  if (!choice.prompt.empty()) {
    rows.push_back(nullptr);
    tokens.push_back(context.token_text(choice.prompt.front()));
  }
  for (const auto* part : {&choice.prompt_logprobs, &choice.logprobs})
    for (const SampledToken& token : *part) {
      rows.push_back(&token);
      tokens.push_back(context.token_text(token.token));
    }
  std::vector<std::string> names;
  for (const TokenText& token : tokens) names.push_back(name_of_token(token));

  const auto put_or_null = [&](const SampledToken* row, const auto& put) {
    if (row == nullptr)
      out += "null";
    else
      put(*row);
  };
  out += "{\"tokens\":";
  put_list(out, names, [&](const std::string& name) { put_string(out, name); });
  out += ",\"token_logprobs\":";
  put_list(out, rows, [&](const SampledToken* row) {
    put_or_null(row, [&](const SampledToken& token) { put_logprob(out, token.logprob); });
  });
  out += ",\"top_logprobs\":";
  size_t i = 0;
  put_list(out, rows, [&](const SampledToken* row) {
    put_or_null(row, [&](const SampledToken& token) { put_top_map(out, context, token, names[i]); });
    ++i;
  });
  out += ",\"text_offset\":";
  put_list(out, text_offsets(tokens, shown_text), [&](size_t offset) { out += std::to_string(offset); });
  out += '}';
}

// ---- choices ----

void put_choice(std::string& out, const RecordContext& context, const Completion& choice) {
  check(choice.reason != FinishReason::error, "a choice that ended by an error has no place in a success");
  const bool chat = context.endpoint == Endpoint::chat_completions;
  out += "{\"index\":";
  put_integer(out, choice.choice);
  out += chat ? ",\"message\":{\"role\":\"assistant\",\"content\":" : ",\"text\":";
  const std::string text = choice.echo ? choice.prompt_text + choice.text : choice.text;
  put_string(out, text);
  out += chat ? ",\"refusal\":null},\"logprobs\":" : ",\"logprobs\":";
  if (choice.logprobs.empty() && choice.prompt.empty())
    out += "null";
  else if (chat)
    put_chat_logprobs(out, context, choice);
  else
    put_text_logprobs(out, context, choice, text);
  out += ",\"finish_reason\":\"";
  out += name_of(choice.reason);
  out += "\"}";
}

std::string head_of(const std::string& custom_id, const std::string& hex) {
  std::string out = "{\"id\":\"batch_req_";
  out += hex;
  out += "\",\"custom_id\":";
  put_string(out, custom_id);
  return out;
}

}  // namespace

std::string success_record(const RecordContext& context, const std::vector<Completion>& choices) {
  const bool chat = context.endpoint == Endpoint::chat_completions;
  const std::string hex = digest128(context.custom_id).hex();
  std::string out = head_of(context.custom_id, hex);
  out += ",\"response\":{\"status_code\":200,\"request_id\":\"req_";
  out += hex;
  out += chat ? "\",\"body\":{\"id\":\"chatcmpl-" : "\",\"body\":{\"id\":\"cmpl-";
  out += hex;
  out += "\",\"object\":\"";
  out += chat ? "chat.completion" : "text_completion";
  out += "\",\"created\":0,\"model\":";
  put_string(out, context.model);
  out += ",\"choices\":";
  put_list(out, choices, [&](const Completion& choice) { put_choice(out, context, choice); });
  int64_t n_generated = 0;
  for (const Completion& choice : choices) n_generated += static_cast<int64_t>(choice.tokens.size());
  out += ",\"usage\":{\"prompt_tokens\":";
  put_integer(out, context.n_prompt_tokens);
  out += ",\"completion_tokens\":";
  put_integer(out, n_generated);
  out += ",\"total_tokens\":";
  put_integer(out, context.n_prompt_tokens + n_generated);
  out += "}}},\"error\":null}";
  return out;
}

std::string error_record(const std::string& custom_id, const Fault& fault) {
  std::string out = head_of(custom_id, digest128(custom_id).hex());
  out += ",\"response\":null,\"error\":{\"code\":";
  put_string(out, fault.code);
  out += ",\"message\":";
  put_string(out, fault.message);
  out += "}}";
  return out;
}

std::string error_record_at_line(std::string_view record, int64_t line) {
  if (record.ends_with(",\"error\":null}")) return std::string(record);
  // Inside a JSON string each quote follows a backslash, so this is found between strings only.
  constexpr std::string_view key = "\"message\":\"";
  const size_t at = record.find(key);
  check(at != std::string_view::npos, "not a record of this program: ", record.substr(0, 60));
  return concat(record.substr(0, at + key.size()), "line ", line, ": ", record.substr(at + key.size()));
}

}  // namespace lockstep
