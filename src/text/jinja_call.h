// What a template can call: macros, the language's functions, methods of strings and dicts; and how arguments are bound.
// Filters and tests take the same Arguments (jinja_filters.h).
//   const auto [old_text, new_text, count] = bind(arguments, "replace", {"old", "new", "count"}, 2);
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja_value.h"

namespace lockstep::jinja {

class Interpreter;
struct MacroNode;
struct Scope;

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

using Function = Value (*)(Interpreter& interpreter, const Value& self, Arguments& arguments);

struct Callable {
  std::string name;
  Function function = nullptr;  // of the language
  std::optional<Value> self;    // of a method
  const MacroNode* macro = nullptr;
  std::weak_ptr<Scope> scope;  // where the macro was defined; gone: the macro can't be called any more
};

// The arguments in the order of the names, null where absent. Raises where one is unknown, given twice, or a required one
// lacks.
void bind_arguments(const Arguments& arguments, std::string_view function, const std::string_view* names, const Value** bound,
                    size_t n_names, size_t n_required);

template <size_t N>
std::array<const Value*, N> bind(const Arguments& arguments, std::string_view function, const std::string_view (&names)[N],
                                 size_t n_required = 0) {
  std::array<const Value*, N> bound{};
  bind_arguments(arguments, function, names, bound.data(), N, n_required);
  return bound;
}

struct NamedFunction {
  std::string_view name;
  Function function;
};

// Null where there is none of that name.
Function find_global(std::string_view name);       // range, namespace, raise_exception …
Function find_text_method(std::string_view name);  // of str
Function find_list_method(std::string_view name);  // of list and tuple
Function find_dict_method(std::string_view name);

// Methods that Python has and the sandbox refuses, since they change their object.
bool is_refused_method(const Value& object, std::string_view name);
// Attributes that Python has, and that this interpreter doesn't: an error by name, not an undefined value.
bool is_unsupported_attribute(const Value& object, std::string_view name);

}  // namespace lockstep::jinja
