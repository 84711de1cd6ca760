// Arithmetic, comparison, `in`, iteration.
#include "text/jinja_ops.h"

#include "base/error.h"
#include "base/utf8.h"
#include "text/jinja_text_ops.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep::jinja {

void check_defined(const Value& value) {
  if (const Undefined* u = value.undefined()) raise(u->message);
}

namespace {

[[noreturn]] void overflow() { raise("an integer goes beyond 64 bits"); }

const char* symbol_of(Operator op) {
  static constexpr const char* kSymbols[] = {
      "+", "-", "*", "/", "//", "%", "** or pow()", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};
  return kSymbols[static_cast<size_t>(op)];
}

[[noreturn]] void unsupported(Operator op, const Value& a, const Value& b) {
  raise("unsupported operand type(s) for ", symbol_of(op), ": '", type_name(a), "' and '", type_name(b), "'");
}

int64_t integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) raise("a negative exponent is not supported");
  int64_t result = 1;
  while (true) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) overflow();
    exponent >>= 1;
    if (exponent == 0) return result;
    if (__builtin_mul_overflow(base, base, &base)) overflow();
  }
}

int64_t floor_division(int64_t a, int64_t b) {
  if (b == 0) raise("integer division or modulo by zero");
  if (b == -1) {
    if (a == std::numeric_limits<int64_t>::min()) overflow();
    return -a;
  }
  const int64_t quotient = a / b;
  return quotient - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

int64_t floor_modulo(int64_t a, int64_t b) {
  if (b == 0) raise("integer division or modulo by zero");
  if (b == -1) return 0;
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

int64_t integer_arithmetic(Operator op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case Operator::add:
      if (__builtin_add_overflow(a, b, &result)) overflow();
      return result;
    case Operator::sub:
      if (__builtin_sub_overflow(a, b, &result)) overflow();
      return result;
    case Operator::mul:
      if (__builtin_mul_overflow(a, b, &result)) overflow();
      return result;
    case Operator::floor_div:
      return floor_division(a, b);
    case Operator::mod:
      return floor_modulo(a, b);
    default:
      return integer_power(a, b);
  }
}

double real_arithmetic(Operator op, double a, double b) {
  switch (op) {
    case Operator::add:
      return a + b;
    case Operator::sub:
      return a - b;
    case Operator::mul:
      return a * b;
    case Operator::pow:
      raise("** of floats is not supported");
    default:
      break;
  }
  if (b == 0) raise(op == Operator::div ? "division by zero" : "float floor division by zero");
  if (op == Operator::div) return a / b;
  if (op == Operator::floor_div) return std::floor(a / b);
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

Value repeat(const Value& value, int64_t times, Budget& budget) {
  const auto n = static_cast<size_t>(std::max<int64_t>(times, 0));
  if (const MarkedText* t = value.text()) {
    if (!t->bytes.empty() && n > kMaxTextBytes / t->bytes.size()) raise("a string grows over ", kMaxTextBytes, " bytes");
    budget.spend_text((t->bytes.size() + t->runs.size() * sizeof(MarkedText::Run)) * n);
    MarkedText repeated;
    for (size_t i = 0; i < n && !t->bytes.empty(); ++i) repeated.append(*t);
    return make_text(std::move(repeated), budget);
  }
  const Sequence& s = *value.sequence();
  std::vector<Value> items;
  if (!s.items.empty()) {
    if (n > size_t{1'000'000} / s.items.size()) Budget::exhausted();
    budget.spend(n * s.items.size());
    for (size_t i = 0; i < n; ++i) items.insert(items.end(), s.items.begin(), s.items.end());
  }
  return make_sequence(std::move(items), budget, s.type);
}

bool is_list_or_tuple(const Value& v) { return v.sequence() != nullptr && v.sequence()->type <= Sequence::Type::tuple; }

Value add(const Value& a, const Value& b, Budget& budget) {
  if (a.text() != nullptr) {
    if (b.text() == nullptr) raise("can only concatenate str (not \"", type_name(b), "\") to str");
    const MarkedText &left = *a.text(), &right = *b.text();
    MarkedText joined = right.html_safe && !left.html_safe ? escape_html(left, budget) : left;
    joined.append(left.html_safe && !right.html_safe ? escape_html(right, budget) : right);
    return make_text(std::move(joined), budget);
  }
  if (is_list_or_tuple(a)) {
    const Sequence& left = *a.sequence();
    if (b.sequence() == nullptr || b.sequence()->type != left.type) {
      raise("can only concatenate ", type_name(a), " (not \"", type_name(b), "\") to ", type_name(a));
    }
    budget.spend(left.items.size() + b.sequence()->items.size());
    std::vector<Value> items = left.items;
    items.insert(items.end(), b.sequence()->items.begin(), b.sequence()->items.end());
    return make_sequence(std::move(items), budget, left.type);
  }
  unsupported(Operator::add, a, b);
}

}  // namespace

Value arithmetic(Operator op, const Value& a, const Value& b, Budget& budget) {
  if (op == Operator::mod && a.text() != nullptr) return printf_format(*a.text(), b, budget);
  check_defined(a);
  check_defined(b);
  if (is_number(a) && is_number(b)) {
    const bool trusted = a.trusted && b.trusted;
    if (op == Operator::div || !is_integral(a) || !is_integral(b))
      return Value(real_arithmetic(op, as_real(a), as_real(b)), trusted);
    return Value(integer_arithmetic(op, as_integer(a), as_integer(b)), trusted);
  }
  if (op == Operator::add) return add(a, b, budget);
  if (op == Operator::mul) {
    const auto repeatable = [](const Value& v) { return v.text() != nullptr || is_list_or_tuple(v); };
    if (repeatable(a) && is_integral(b)) return repeat(a, as_integer(b), budget);
    if (repeatable(b) && is_integral(a)) return repeat(b, as_integer(a), budget);
    if (repeatable(a)) raise("can't multiply sequence by non-int of type '", type_name(b), "'");
  }
  unsupported(op, a, b);
}

Value sign(const Value& value, bool negative) {
  check_defined(value);
  if (const double* r = value.real()) return Value(negative ? -*r : *r, value.trusted);
  if (is_integral(value)) {
    const int64_t i = as_integer(value);
    if (negative && i == std::numeric_limits<int64_t>::min()) overflow();
    return Value(negative ? -i : i, value.trusted);
  }
  raise("bad operand type for unary ", negative ? '-' : '+', ": '", type_name(value), "'");
}

bool less(const Value& a, const Value& b, Budget& budget, std::string_view symbol) {
  check_defined(a);
  check_defined(b);
  budget.spend(1);
  if (is_number(a) && is_number(b)) {
    if (is_integral(a) && is_integral(b)) return as_integer(a) < as_integer(b);
    return as_real(a) < as_real(b);
  }
  if (a.text() != nullptr && b.text() != nullptr) {
    budget.spend_text(std::min(a.text()->bytes.size(), b.text()->bytes.size()));
    return a.text()->bytes < b.text()->bytes;  // UTF-8 sorts as code points do
  }
  if (is_list_or_tuple(a) && is_list_or_tuple(b) && a.sequence()->type == b.sequence()->type) {
    const auto &x = a.sequence()->items, &y = b.sequence()->items;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!equal(x[i], y[i], budget)) return less(x[i], y[i], budget, symbol);
    }
    return x.size() < y.size();
  }
  raise("'", symbol, "' not supported between instances of '", type_name(a), "' and '", type_name(b), "'");
}

bool contains(const Value& container, const Value& item, Budget& budget) {
  if (const MarkedText* t = container.text()) {
    if (item.text() == nullptr) raise("'in <string>' requires string as left operand, not ", type_name(item));
    budget.spend_text(t->bytes.size());
    return find_bytes(t->bytes, item.text()->bytes) != std::string_view::npos;
  }
  if (const Dict* d = container.dict()) return d->find(item, budget) != nullptr;
  if (container.is_undefined()) return false;
  if (container.sequence() == nullptr) raise("argument of type '", type_name(container), "' is not iterable");
  const Sequence& s = *container.sequence();
  const bool consumes = s.type == Sequence::Type::generator;
  for (size_t i = consumes ? s.n_consumed : 0; i < s.items.size(); ++i) {
    if (consumes) s.n_consumed = i + 1;
    if (equal(s.items[i], item, budget)) return true;
  }
  if (s.late_error) throw RenderError(*s.late_error);
  return false;
}

bool compare(Operator op, const Value& a, const Value& b, Budget& budget) {
  const bool unordered = (a.real() != nullptr && std::isnan(*a.real())) || (b.real() != nullptr && std::isnan(*b.real()));
  switch (op) {
    case Operator::eq:
      return equal(a, b, budget);
    case Operator::ne:
      return !equal(a, b, budget);
    case Operator::lt:
      return less(a, b, budget, "<");
    case Operator::le:
      return !less(b, a, budget, ">=") && !unordered;
    case Operator::gt:
      return less(b, a, budget, ">");
    case Operator::ge:
      return !less(a, b, budget, "<=") && !unordered;
    case Operator::in:
      return contains(b, a, budget);
    default:
      return !contains(b, a, budget);
  }
}

std::vector<Value> iterate(const Value& value, Budget& budget) {
  if (const Sequence* s = value.sequence()) {
    const size_t from = s->type == Sequence::Type::generator ? std::exchange(s->n_consumed, s->items.size()) : 0;
    budget.spend(s->items.size() - from);
    if (s->late_error) throw RenderError(*s->late_error);
    return {s->items.begin() + static_cast<ptrdiff_t>(from), s->items.end()};
  }
  std::vector<Value> items;
  if (const Dict* d = value.dict()) {
    budget.spend(d->entries.size());
    for (const auto& entry : d->entries) items.push_back(entry.first);
  } else if (const MarkedText* t = value.text()) {
    for (size_t at = 0; at < t->bytes.size();) {
      const size_t end = at + decode_utf8(t->bytes, at).length;
      budget.spend(1);
      MarkedText letter;  // append and not slice: the letters of safe text are plain
      letter.append(*t, at, end);
      items.emplace_back(std::move(letter));
      at = end;
    }
  } else if (!value.is_undefined()) {
    raise("'", type_name(value), "' object is not iterable");
  }
  return items;
}

int64_t length(const Value& value) {
  if (const MarkedText* t = value.text()) return static_cast<int64_t>(count_code_points(t->bytes));
  if (const Dict* d = value.dict()) return static_cast<int64_t>(d->entries.size());
  if (value.is_undefined()) return 0;
  const Sequence* s = value.sequence();
  if (s == nullptr || s->type == Sequence::Type::generator) raise("object of type '", type_name(value), "' has no len()");
  return static_cast<int64_t>(s->items.size());
}

}  // namespace lockstep::jinja
