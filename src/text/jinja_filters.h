// The filters (`x | trim`) and tests (`x is string`) by name. Each file jinja_*_filters.cpp has a table of its own. Names that
// are not here make the parser refuse the template.
//   find_filter("trim")->apply(interpreter, value, arguments)
#pragma once

#include <span>
#include <string_view>

#include "text/jinja_call.h"

namespace lockstep::jinja {

struct FilterEntry {
  std::string_view name;
  Function apply;
};
struct TestEntry {
  std::string_view name;
  bool (*apply)(Interpreter& interpreter, const Value& value, Arguments& arguments);
};

const FilterEntry* find_filter(std::string_view name);
const TestEntry* find_test(std::string_view name);

std::span<const FilterEntry> text_filters();      // strings and numbers
std::span<const FilterEntry> sequence_filters();  // lists and dicts
std::span<const FilterEntry> select_filters();    // map, select, sort and others that look into elements

}  // namespace lockstep::jinja
