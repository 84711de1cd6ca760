// Methods of lists and dicts, and which attributes of Python's objects are refused or not supported.
#include "base/error.h"
#include "text/jinja_call.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_ops.h"
#include "text/jinja_text_ops.h"

#include <algorithm>

namespace lockstep::jinja {

namespace {

Value get_method(Interpreter& i, const Value& self, Arguments& args) {
  const auto [key, fallback] = bind(args, "get", {"key", "default"}, 1);
  const Value* found = self.dict()->find(*key, i.budget);
  return found != nullptr ? *found : fallback != nullptr ? *fallback : Value();
}

Value items_method(Interpreter& i, const Value& self, Arguments&) {
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict()->entries) {
    items.push_back(make_sequence({key, value}, i.budget, Sequence::Type::tuple));
  }
  return make_sequence(std::move(items), i.budget, Sequence::Type::items);
}

Value keys_method(Interpreter& i, const Value& self, Arguments&) {
  return make_sequence(iterate(self, i.budget), i.budget, Sequence::Type::keys);
}

Value values_method(Interpreter& i, const Value& self, Arguments&) {
  std::vector<Value> items;
  for (const auto& entry : self.dict()->entries) items.push_back(entry.second);
  return make_sequence(std::move(items), i.budget, Sequence::Type::values);
}

Value copy_method(Interpreter&, const Value& self, Arguments&) { return self; }  // nothing changes either of the two

Value index_method(Interpreter& i, const Value& self, Arguments& args) {
  const auto [wanted] = bind(args, "index", {"value"}, 1);
  const auto& items = self.sequence()->items;
  for (size_t at = 0; at < items.size(); ++at) {
    if (equal(items[at], *wanted, i.budget)) return Value(static_cast<int64_t>(at));
  }
  raise(repr(*wanted, i.budget), " is not in list");
}

Value count_method(Interpreter& i, const Value& self, Arguments& args) {
  const auto [wanted] = bind(args, "count", {"value"}, 1);
  const auto& items = self.sequence()->items;
  return Value(static_cast<int64_t>(
      std::count_if(items.begin(), items.end(), [&](const Value& item) { return equal(item, *wanted, i.budget); })));
}

template <size_t N>
bool is_among(const std::string_view (&names)[N], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

Function find_list_method(std::string_view name) {
  if (name == "index") return index_method;
  if (name == "count") return count_method;
  if (name == "copy") return copy_method;
  return nullptr;
}

Function find_dict_method(std::string_view name) {
  if (name == "get") return get_method;
  if (name == "items") return items_method;
  if (name == "keys") return keys_method;
  if (name == "values") return values_method;
  if (name == "copy") return copy_method;
  return nullptr;
}

bool is_refused_method(const Value& object, std::string_view name) {
  static constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  static constexpr std::string_view kList[] = {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"};
  if (object.dict() != nullptr) return is_among(kDict, name);
  const Sequence* s = object.sequence();
  return s != nullptr && s->type == Sequence::Type::list && is_among(kList, name);
}

bool is_unsupported_attribute(const Value& object, std::string_view name) {
  static constexpr std::string_view kText[] = {"encode",      "expandtabs", "format_map", "isidentifier",
                                               "isprintable", "istitle",    "maketrans",  "translate"};
  static constexpr std::string_view kNumber[] = {"real",       "imag",       "numerator",        "denominator", "conjugate",
                                                 "bit_length", "is_integer", "as_integer_ratio", "to_bytes",    "hex"};
  if (object.text() != nullptr) return is_among(kText, name);
  if (object.dict() != nullptr) return name == "fromkeys";
  return (is_number(object) || object.big_integer() != nullptr) && is_among(kNumber, name);
}

}  // namespace lockstep::jinja
