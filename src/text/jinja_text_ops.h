// String operations that keep the marks, used by the methods of str and by the filters alike.
//   split(text, ",", -1, budget), upper(text, budget)
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "text/jinja_value.h"

namespace lockstep::jinja {

// Python's str.split / rsplit; `separator` absent: runs of white space. n_splits < 0: all.
std::vector<Value> split(const MarkedText& text, std::optional<std::string_view> separator, int64_t n_splits, Budget& budget);
std::vector<Value> split_from_right(const MarkedText& text, std::optional<std::string_view> separator, int64_t n_splits,
                                    Budget& budget);
std::vector<Value> split_lines(const MarkedText& text, bool keep_ends, Budget& budget);
MarkedText replace(const MarkedText& text, std::string_view old_text, const MarkedText& new_text, int64_t count,
                   Budget& budget);
MarkedText strip(const MarkedText& text, bool left, bool right, const MarkedText* characters, Budget& budget);
MarkedText escape_html(const MarkedText& text, Budget& budget);
MarkedText pad(const MarkedText& text, int64_t width, bool left, bool right, const MarkedText& fill, Budget& budget);

MarkedText upper(const MarkedText& text, Budget& budget);
MarkedText lower(const MarkedText& text, Budget& budget);
MarkedText swap_case(const MarkedText& text, Budget& budget);
MarkedText capitalize(const MarkedText& text, Budget& budget);
MarkedText title(const MarkedText& text, bool as_filter, Budget& budget);  // str.title and |title start words differently

MarkedText format_braces(const MarkedText& format, const std::vector<Value>& positional,
                         const std::vector<std::pair<std::string, Value>>& named, Budget& budget);  // str.format

// The string of an argument; raises with the name of the function otherwise.
const MarkedText& text_argument(const Value& value, std::string_view function);
int64_t integer_argument(const Value& value, std::string_view function);

}  // namespace lockstep::jinja
