// Template source to tokens, with Transformers' settings: trim_blocks, lstrip_blocks, one newline at the end dropped. Not a
// check of the grammar. Throws Error (unreadable) with the line.
//   tokenize("a {{ x }}\n") → text "a ", begin_output, name "x", end_output, end
#pragma once

#include "base/error.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::jinja {

struct Token {
  enum class Type : uint8_t {
    text,
    begin_output,
    end_output,
    begin_block,
    end_block,
    name,
    string,
    integer,
    real,
    symbol,
    end
  };
  Type type;
  int line;
  std::string text;  // text, name, symbol ("==", "|"); string: its value
  int64_t integer = 0;
  double real = 0;

  bool is(Type t, std::string_view value) const { return type == t && text == value; }
  bool is_symbol(std::string_view value) const { return is(Type::symbol, value); }
  bool is_name(std::string_view value) const { return is(Type::name, value); }
};

std::vector<Token> tokenize(std::string_view source);

template <class... Parts>
[[noreturn]] void fail_at_line(int line, const Parts&... parts) {
  fail(ExitCode::unreadable, "chat template line ", line, ": ", parts...);
}

}  // namespace lockstep::jinja
