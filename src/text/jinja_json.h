// JSON to values, and values to JSON as Python's json.dumps writes it.
//   Value tools = read_json(text, false, budget);   write_json(tools, {.indent = "    "}, budget)
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/jinja_value.h"

namespace lockstep::jinja {

inline constexpr int kMaxJsonDepth = 64;

// Throws RenderError on malformed text or nesting over kMaxJsonDepth. Integers beyond 64 bits keep their digits.
Value read_json(std::string_view text, bool trusted, Budget& budget);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // one level; absent: all in one line
  std::string item_separator = ", ";  // with indent: "," by Python's default
  std::string key_separator = ": ";
};

// Raises for what Python can't serialise either (generators, undefined values).
std::string write_json(const Value& value, const JsonStyle& style, Budget& budget);

}  // namespace lockstep::jinja
