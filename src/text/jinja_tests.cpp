// The tests: x is string, x is divisibleby 3.
#include "base/error.h"
#include "text/jinja_filters.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_ops.h"
#include "text/jinja_text_ops.h"

#include <algorithm>

namespace lockstep::jinja {

namespace {

using Args = Arguments;
using I = Interpreter;

bool is_defined(I&, const Value& v, Args&) { return !v.is_undefined(); }
bool is_undefined(I&, const Value& v, Args&) { return v.is_undefined(); }
bool is_none(I&, const Value& v, Args&) { return v.is_none(); }
bool is_boolean(I&, const Value& v, Args&) { return v.boolean() != nullptr; }
bool is_true_value(I&, const Value& v, Args&) { return v.boolean() != nullptr && *v.boolean(); }
bool is_false_value(I&, const Value& v, Args&) { return v.boolean() != nullptr && !*v.boolean(); }
bool is_integer(I&, const Value& v, Args&) { return v.integer() != nullptr || v.big_integer() != nullptr; }
bool is_float(I&, const Value& v, Args&) { return v.real() != nullptr; }
bool is_any_number(I&, const Value& v, Args&) { return is_number(v) || v.big_integer() != nullptr; }
bool is_string(I&, const Value& v, Args&) { return v.text() != nullptr; }
bool is_mapping(I&, const Value& v, Args&) { return v.dict() != nullptr; }
bool is_callable(I&, const Value& v, Args&) { return v.callable() != nullptr || v.is_undefined(); }
bool is_sequence(I&, const Value& v, Args&) {
  return v.text() != nullptr || v.dict() != nullptr || v.is_undefined() ||
         (v.sequence() != nullptr && v.sequence()->indexable());
}
bool is_iterable(I&, const Value& v, Args&) {
  return v.text() != nullptr || v.dict() != nullptr || v.is_undefined() || v.sequence() != nullptr;
}
bool is_escaped(I&, const Value&, Args&) { return false; }

bool is_same(I& i, const Value& v, Args& args) {
  const auto [other] = bind(args, "sameas", {"other"}, 1);
  if (v.is_none() || v.boolean() != nullptr) return v.data.index() == other->data.index() && equal(v, *other, i.budget);
  return v.data == other->data;
}
bool is_in(I& i, const Value& v, Args& args) {
  const auto [container] = bind(args, "in", {"seq"}, 1);
  return contains(*container, v, i.budget);
}

bool divides(I& i, const Value& v, const Value& by, int64_t rest) {
  return equal(arithmetic(Operator::mod, v, by, i.budget), Value(rest), i.budget);
}
bool is_odd(I& i, const Value& v, Args&) { return divides(i, v, Value(int64_t{2}), 1); }
bool is_even(I& i, const Value& v, Args&) { return divides(i, v, Value(int64_t{2}), 0); }
bool is_divisible(I& i, const Value& v, Args& args) {
  const auto [by] = bind(args, "divisibleby", {"num"}, 1);
  return divides(i, v, *by, 0);
}

template <Operator op>
bool is_compared(I& i, const Value& v, Args& args) {
  const auto [other] = bind(args, "comparison", {"other"}, 1);
  return compare(op, v, *other, i.budget);
}

template <bool upper_case>
bool is_case(I& i, const Value& v, Args&) {
  Args none;
  return is_true(find_text_method(upper_case ? "isupper" : "islower")(i, i.text(i.to_text(v)), none));
}

bool is_filter(I&, const Value& v, Args&) { return v.text() != nullptr && find_filter(v.text()->bytes) != nullptr; }
bool is_test(I&, const Value& v, Args&) { return v.text() != nullptr && find_test(v.text()->bytes) != nullptr; }

constexpr TestEntry kTests[] = {
    {"defined", is_defined},
    {"undefined", is_undefined},
    {"none", is_none},
    {"boolean", is_boolean},
    {"true", is_true_value},
    {"false", is_false_value},
    {"integer", is_integer},
    {"float", is_float},
    {"number", is_any_number},
    {"string", is_string},
    {"mapping", is_mapping},
    {"callable", is_callable},
    {"sequence", is_sequence},
    {"iterable", is_iterable},
    {"escaped", is_escaped},
    {"sameas", is_same},
    {"in", is_in},
    {"odd", is_odd},
    {"even", is_even},
    {"divisibleby", is_divisible},
    {"upper", is_case<true>},
    {"lower", is_case<false>},
    {"filter", is_filter},
    {"test", is_test},
    {"==", is_compared<Operator::eq>},
    {"eq", is_compared<Operator::eq>},
    {"equalto", is_compared<Operator::eq>},
    {"!=", is_compared<Operator::ne>},
    {"ne", is_compared<Operator::ne>},
    {"<", is_compared<Operator::lt>},
    {"lt", is_compared<Operator::lt>},
    {"lessthan", is_compared<Operator::lt>},
    {"<=", is_compared<Operator::le>},
    {"le", is_compared<Operator::le>},
    {">", is_compared<Operator::gt>},
    {"gt", is_compared<Operator::gt>},
    {"greaterthan", is_compared<Operator::gt>},
    {">=", is_compared<Operator::ge>},
    {"ge", is_compared<Operator::ge>},
};

}  // namespace

const TestEntry* find_test(std::string_view name) {
  const auto* found = std::find_if(std::begin(kTests), std::end(kTests), [&](const TestEntry& t) { return t.name == name; });
  return found == std::end(kTests) ? nullptr : found;
}

}  // namespace lockstep::jinja
