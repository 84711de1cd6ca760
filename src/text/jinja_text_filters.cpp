// Filters of strings and numbers.
#include "base/error.h"
#include "base/utf8.h"
#include "text/jinja_filters.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_json.h"
#include "text/jinja_ops.h"
#include "text/jinja_text_ops.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace lockstep::jinja {

namespace {

using Args = Arguments;
using I = Interpreter;

bool flag(const Value* value, bool fallback = false) { return value == nullptr ? fallback : is_true(*value); }

Value string_filter(I& i, const Value& input, Args&) { return input.text() != nullptr ? input : i.text(i.to_text(input)); }

template <MarkedText (*map)(const MarkedText&, Budget&)>
Value map_filter(I& i, const Value& input, Args& args) {
  bind(args, "filter", {""});
  return i.text(map(i.to_text(input), i.budget));
}
MarkedText title_words(const MarkedText& text, Budget& budget) { return title(text, true, budget); }

Value trim_filter(I& i, const Value& input, Args& args) {
  const auto [chars] = bind(args, "trim", {"chars"});
  const MarkedText* set = chars == nullptr || chars->is_none() ? nullptr : &text_argument(*chars, "trim");
  return i.text(strip(i.to_text(input), true, true, set, i.budget));
}

Value replace_filter(I& i, const Value& input, Args& args) {
  const auto [old_text, new_text, count] = bind(args, "replace", {"old", "new", "count"}, 2);
  const int64_t n = count == nullptr || count->is_none() ? -1 : integer_argument(*count, "replace");
  return i.text(replace(i.to_text(input), i.to_text(*old_text).bytes, i.to_text(*new_text), n, i.budget));
}

template <bool again>
Value escape_filter(I& i, const Value& input, Args&) {
  MarkedText text = i.to_text(input);
  if (again || !text.html_safe) text = escape_html(text, i.budget);
  return i.text(std::move(text));
}

Value safe_filter(I& i, const Value& input, Args&) {
  MarkedText text = i.to_text(input);
  text.html_safe = true;
  return i.text(std::move(text));
}

Value indent_filter(I& i, const Value& input, Args& args) {
  const auto [width, first, blank] = bind(args, "indent", {"width", "first", "blank"});
  MarkedText text = text_argument(input, "indent");
  MarkedText indention(std::string(4, ' '), true);
  if (width != nullptr && width->text() != nullptr) {
    indention = *width->text();
  } else if (width != nullptr) {
    const int64_t n = std::max<int64_t>(integer_argument(*width, "indent"), 0);
    if (n > 10'000) raise("indent() wants too many blanks");
    indention = MarkedText(std::string(static_cast<size_t>(n), ' '), true);
  }
  const MarkedText newline("\n", true);
  text.append(newline);
  MarkedText out;
  const std::vector<Value> lines = split_lines(text, false, i.budget);
  for (size_t n = 0; n < lines.size(); ++n) {
    const MarkedText& line = *lines[n].text();
    if (n > 0) out.append(newline);
    if (n == 0 ? flag(first) : flag(blank) || !line.bytes.empty()) out.append(indention);
    out.append(line);
    check_length(out);
  }
  return i.text(std::move(out));
}

Value center_filter(I& i, const Value& input, Args& args) {
  const auto [width] = bind(args, "center", {"width"});
  return i.text(pad(i.to_text(input), width == nullptr ? 80 : integer_argument(*width, "center"), true, true,
                    MarkedText(" ", true), i.budget));
}

Value truncate_filter(I& i, const Value& input, Args& args) {
  const auto [length, kill, end, leeway] = bind(args, "truncate", {"length", "killwords", "end", "leeway"});
  if (input.is_undefined()) return input;
  const MarkedText& text = text_argument(input, "truncate");
  const MarkedText mark = end == nullptr ? MarkedText("...", true) : text_argument(*end, "truncate");
  const int64_t wanted = length == nullptr ? 255 : integer_argument(*length, "truncate");
  const int64_t tolerance = leeway == nullptr || leeway->is_none() ? 5 : integer_argument(*leeway, "truncate");
  const auto n_mark = static_cast<int64_t>(count_code_points(mark.bytes));
  if (wanted < n_mark || tolerance < 0 || wanted > INT32_MAX || tolerance > INT32_MAX)
    raise("truncate() wants a length of at least that of its end");
  i.budget.spend_text(text.bytes.size());
  if (static_cast<int64_t>(count_code_points(text.bytes)) <= wanted + tolerance) return input;
  size_t cut = byte_offset(text.bytes, static_cast<size_t>(wanted - n_mark));
  if (!flag(kill)) {
    i.budget.spend_text(kMirrorCost * cut);
    const size_t blank = rfind_bytes(std::string_view(text.bytes).substr(0, cut), " ");
    if (blank != std::string_view::npos) cut = blank;
  }
  MarkedText out = text.slice(0, cut);
  out.append(mark);
  return i.text(std::move(out));
}

Value format_filter(I& i, const Value& input, Args& args) {
  if (!args.named.empty() && !args.positional.empty()) raise("can't handle positional and keyword arguments at the same time");
  if (args.named.empty()) {
    return printf_format(i.to_text(input), make_sequence(args.positional, i.budget, Sequence::Type::tuple), i.budget);
  }
  Dict named;
  for (const auto& [name, value] : args.named) named.set(make_text(name, true), value, i.budget);
  return printf_format(i.to_text(input), Value(std::make_shared<const Dict>(std::move(named))), i.budget);
}

Value tojson_filter(I& i, const Value& input, Args& args) {
  const auto [ascii, indent, separators, sort] = bind(args, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = flag(ascii);
  style.sort_keys = flag(sort);
  bool trusted = !holds_untrusted(input, i.budget);
  if (indent != nullptr && !indent->is_none()) {
    if (const MarkedText* t = indent->text()) {
      style.indent = t->bytes;
      trusted &= t->all_trusted();
    } else {
      const int64_t n = integer_argument(*indent, "tojson");
      if (n > 100) raise("tojson() wants too many blanks");
      style.indent = std::string(static_cast<size_t>(std::max<int64_t>(n, 0)), ' ');
    }
    style.item_separator = std::string(1, ',');
  }
  if (separators != nullptr && !separators->is_none()) {
    const std::vector<Value> pair = iterate(*separators, i.budget);
    if (pair.size() != 2) raise("tojson() wants two separators");
    style.item_separator = text_argument(pair[0], "tojson").bytes;
    style.key_separator = text_argument(pair[1], "tojson").bytes;
    trusted &= pair[0].text()->all_trusted() && pair[1].text()->all_trusted();
  }
  return i.text(MarkedText(write_json(input, style, i.budget), trusted));
}

Value default_filter(I&, const Value& input, Args& args) {
  const auto [fallback, boolean] = bind(args, "default", {"default_value", "boolean"});
  if (!input.is_undefined() && !(flag(boolean) && !is_true(input))) return input;
  return fallback == nullptr ? make_text("", true) : *fallback;
}

// Python's float("…") of a string; nullopt where it raises ValueError.
std::optional<double> parse_real(const MarkedText& text, Budget& budget) {
  budget.spend_text(kCharacterCost * text.bytes.size());
  const auto [from, to] = strip_bounds(text.bytes, true, true);
  std::string digits = text.bytes.substr(from, to - from);
  std::erase(digits, '_');
  if (!digits.empty() && digits[0] == '+') digits.erase(0, 1);
  double value = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || result.ec != std::errc() || result.ptr != digits.data() + digits.size()) return std::nullopt;
  return value;
}

std::optional<int64_t> parse_integer(const MarkedText& text, int64_t base, Budget& budget) {
  budget.spend_text(kCharacterCost * text.bytes.size());
  const auto [from, to] = strip_bounds(text.bytes, true, true);
  std::string digits = text.bytes.substr(from, to - from);
  std::erase(digits, '_');
  const bool negative = !digits.empty() && digits[0] == '-';
  if (!digits.empty() && (digits[0] == '+' || digits[0] == '-')) digits.erase(0, 1);
  const char kind = digits.size() > 2 && digits[0] == '0' ? static_cast<char>(digits[1] | 0x20) : ' ';
  if ((base == 16 && kind == 'x') || (base == 8 && kind == 'o') || (base == 2 && kind == 'b')) digits.erase(0, 2);
  if (negative) digits.insert(0, 1, '-');
  int64_t value = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value, static_cast<int>(base));
  if (result.ec == std::errc::result_out_of_range) raise("an integer goes beyond 64 bits");
  if (digits.empty() || digits == "-" || result.ec != std::errc() || result.ptr != digits.data() + digits.size())
    return std::nullopt;
  return value;
}

int64_t truncated(double value) {
  if (!(std::abs(value) < 9.2e18)) raise("an integer goes beyond 64 bits");
  return static_cast<int64_t>(value);
}

Value int_filter(I& i, const Value& input, Args& args) {
  const auto [fallback, base] = bind(args, "int", {"default", "base"});
  check_defined(input);
  const int64_t b = base == nullptr ? 10 : integer_argument(*base, "int");
  if (b < 2 || b > 36) raise("int() base must be >= 2 and <= 36");
  if (is_integral(input)) return Value(as_integer(input), input.trusted);
  if (const double* r = input.real(); r != nullptr && std::isfinite(*r)) return Value(truncated(*r), input.trusted);
  if (input.big_integer() != nullptr) return input;
  if (const MarkedText* t = input.text()) {
    if (const auto value = parse_integer(*t, b, i.budget)) return Value(*value, t->all_trusted());
    if (const auto value = parse_real(*t, i.budget); value && std::isfinite(*value))
      return Value(truncated(*value), t->all_trusted());
  }
  return fallback == nullptr ? Value(int64_t{0}) : *fallback;
}

Value float_filter(I& i, const Value& input, Args& args) {
  const auto [fallback] = bind(args, "float", {"default"});
  check_defined(input);
  if (is_number(input)) return Value(as_real(input), input.trusted);
  if (const MarkedText* t = input.text()) {
    if (const auto value = parse_real(*t, i.budget)) return Value(*value, t->all_trusted());
  }
  return fallback == nullptr ? Value(0.0) : *fallback;
}

Value abs_filter(I&, const Value& input, Args&) {
  check_defined(input);
  if (!is_number(input)) raise("bad operand type for abs(): '", type_name(input), "'");
  if (const double* r = input.real()) return Value(std::abs(*r), input.trusted);
  return as_integer(input) < 0 ? sign(input, true) : Value(as_integer(input), input.trusted);
}

Value round_filter(I&, const Value& input, Args& args) {
  const auto [precision, method] = bind(args, "round", {"precision", "method"});
  check_defined(input);
  if (!is_number(input)) raise("type ", type_name(input), " doesn't define __round__ method");
  const int64_t digits = precision == nullptr ? 0 : integer_argument(*precision, "round");
  const std::string how = method == nullptr ? "common" : text_argument(*method, "round").bytes;
  if (digits < 0 || digits > 15) raise("round() to this precision is not supported");
  if (how == "common" && is_integral(input)) return Value(as_integer(input), input.trusted);
  const double value = as_real(input);
  if (!std::isfinite(value)) return input;
  if (how == "common") {
    // As Python: the decimal digits of the exact value are rounded, ties to even.
    char buffer[400];
    const auto done = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed, static_cast<int>(digits));
    double rounded = value;
    std::from_chars(buffer, done.ptr, rounded);
    return Value(rounded, input.trusted);
  }
  if (how != "ceil" && how != "floor") raise("method must be common, ceil or floor");
  double scale = 1;
  for (int64_t n = 0; n < digits; ++n) scale *= 10;
  return Value((how == "ceil" ? std::ceil(value * scale) : std::floor(value * scale)) / scale, input.trusted);
}

constexpr FilterEntry kFilters[] = {
    {"string", string_filter},
    {"safe", safe_filter},
    {"trim", trim_filter},
    {"upper", map_filter<upper>},
    {"lower", map_filter<lower>},
    {"title", map_filter<title_words>},
    {"capitalize", map_filter<capitalize>},
    {"replace", replace_filter},
    {"escape", escape_filter<false>},
    {"e", escape_filter<false>},
    {"forceescape", escape_filter<true>},
    {"indent", indent_filter},
    {"center", center_filter},
    {"truncate", truncate_filter},
    {"format", format_filter},
    {"tojson", tojson_filter},
    {"default", default_filter},
    {"d", default_filter},
    {"int", int_filter},
    {"float", float_filter},
    {"abs", abs_filter},
    {"round", round_filter},
};

}  // namespace

std::span<const FilterEntry> text_filters() { return kFilters; }

}  // namespace lockstep::jinja
