// Operators and access with Python's meaning: arithmetic, comparison, `in`, indices, slices, attributes, iteration.
//   arithmetic(Operator::add, a, b, budget)   raises RenderError where Python raises TypeError
#pragma once

#include <string_view>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_value.h"

namespace lockstep::jinja {

Value arithmetic(Operator op, const Value& a, const Value& b, Budget& budget);
Value sign(const Value& value, bool negative);                              // -value, +value
bool compare(Operator op, const Value& a, const Value& b, Budget& budget);  // eq … not_in
bool less(const Value& a, const Value& b, Budget& budget, std::string_view symbol = "<");
bool contains(const Value& container, const Value& item, Budget& budget);

// value[key] and value.name; an undefined value where there is nothing.
Value get_item(const Value& value, const Value& key, Budget& budget);
Value get_attribute(const Value& value, const std::string& name, Budget& budget);
Value get_slice(const Value& value, const Value* start, const Value* stop, const Value* step, Budget& budget);

// namespace.name = value
void set_space_item(Object& space, const std::string& name, Value value, Budget& budget);

// The elements that a `for` sees; a generator's are gone afterwards. Raises where Python can't iterate.
std::vector<Value> iterate(const Value& value, Budget& budget);

int64_t length(const Value& value);

// "%s and %d" % values
Value printf_format(const MarkedText& format, const Value& values, Budget& budget);

// Raises if the value is undefined.
void check_defined(const Value& value);

}  // namespace lockstep::jinja
