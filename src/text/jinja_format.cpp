// "%s" % x and "{}".format(x). The format's own characters and each value keep their marks.
#include "base/error.h"
#include "base/utf8.h"
#include "text/jinja_ops.h"
#include "text/jinja_text_ops.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace lockstep::jinja {

namespace {

constexpr int64_t kMaxWidth = 100'000;

struct Spec {
  MarkedText fill{" ", true};
  char align = 0;  // < > ^ or 0: the type's own
  char sign = 0;   // + or blank
  bool zeros = false, grouping = false;
  int64_t width = 0, precision = -1;
  char type = 0;
};

int64_t read_number(std::string_view text, size_t& at) {
  int64_t value = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    value = value * 10 + (text[at++] - '0');
    if (value > kMaxWidth) raise("a format is too wide");
  }
  return value;
}

std::string fixed(double value, int64_t precision) {
  if (precision > 100) raise("a format asks for too many digits");
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string buffer(480, '\0');
  const auto done = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed,
                                  static_cast<int>(precision < 0 ? 6 : precision));
  buffer.resize(static_cast<size_t>(done.ptr - buffer.data()));
  return buffer;
}

std::string in_base(int64_t value, int base, bool upper_case) {
  char buffer[72];
  const auto done = std::to_chars(buffer, buffer + sizeof buffer, value, base);
  std::string text(buffer, done.ptr);
  if (upper_case)
    std::transform(text.begin(), text.end(), text.begin(),
                   [](char c) { return c >= 'a' && c <= 'f' ? static_cast<char>(c - 32) : c; });
  return text;
}

void group_thousands(std::string& number) {
  const size_t start = number.find_first_of("0123456789");
  size_t end = number.find('.');
  if (end == std::string::npos) end = number.size();
  if (start == std::string::npos) return;
  for (size_t at = end; at > start + 3;) number.insert(at -= 3, 1, ',');
}

MarkedText format_number(const Value& value, const Spec& spec) {
  check_defined(value);
  if (!is_number(value)) raise("%", spec.type, " format: a real number is required, not ", type_name(value));
  std::string text;
  switch (spec.type) {
    case 'f':
    case 'F':
      text = fixed(as_real(value), spec.precision);
      break;
    case 'x':
    case 'X':
    case 'o':
    case 'b':
      if (!is_integral(value)) raise("%", spec.type, " format: an integer is required, not ", type_name(value));
      text = in_base(as_integer(value), spec.type == 'o' ? 8 : spec.type == 'b' ? 2 : 16, spec.type == 'X');
      break;
    default: {
      const double real = is_integral(value) ? 0 : as_real(value);
      if (!(std::abs(real) < 9e18)) raise("a float beyond 64 bits in a format");
      text = std::to_string(is_integral(value) ? as_integer(value) : static_cast<int64_t>(real));
    }
  }
  if (spec.grouping) group_thousands(text);
  if (spec.sign != 0 && text[0] != '-') text.insert(0, 1, spec.sign);
  if (spec.zeros && spec.width > static_cast<int64_t>(text.size())) {
    const size_t at = text[0] == '-' || text[0] == '+' || text[0] == ' ' ? 1 : 0;
    text.insert(at, static_cast<size_t>(spec.width) - text.size(), '0');
  }
  return {text, value.trusted};
}

MarkedText format_value(const Value& value, const Spec& spec, Budget& budget) {
  static constexpr std::string_view kNumbers = "dfFxXobi";
  const bool number = spec.type != 0 && kNumbers.find(spec.type) != std::string_view::npos;
  MarkedText text;
  if (number || (spec.type == 0 && is_number(value) && value.boolean() == nullptr &&
                 (spec.grouping || spec.sign != 0 || spec.zeros || spec.precision >= 0))) {
    Spec own = spec;
    if (own.type == 0) own.type = value.real() != nullptr ? 'f' : 'd';
    text = format_number(value, own);
  } else if (spec.type == 'r') {
    text = MarkedText(repr(value, budget), !holds_untrusted(value, budget));
  } else if (spec.type == 's' || spec.type == 0) {
    text = to_text(value, budget);
    if (spec.precision >= 0) text = text.slice(0, byte_offset(text.bytes, static_cast<size_t>(spec.precision)));
  } else {
    raise("the format character '", spec.type, "' is not supported");
  }
  const char align = spec.align != 0 ? spec.align : is_number(value) ? '>' : '<';
  return pad(text, spec.width, align != '<', align != '>', spec.fill, budget);
}

}  // namespace

Value printf_format(const MarkedText& format, const Value& values, Budget& budget) {
  const bool is_tuple = values.sequence() != nullptr && values.sequence()->type == Sequence::Type::tuple;
  const std::string_view bytes = format.bytes;
  MarkedText out;
  size_t n_used = 0;
  bool named = false;
  const auto next_value = [&]() -> Value {
    const size_t i = n_used++;
    if (is_tuple && i < values.sequence()->items.size()) return values.sequence()->items[i];
    if (is_tuple || i > 0) raise("not enough arguments for format string");
    return values;
  };
  for (size_t at = 0; at < bytes.size();) {
    budget.spend(1);
    const size_t percent = std::min(bytes.find('%', at), bytes.size());
    out.append(format, at, percent);
    at = percent + 1;
    if (percent == bytes.size()) break;
    if (at < bytes.size() && bytes[at] == '%') {
      out.append(format, at, at + 1);
      ++at;
      continue;
    }
    Value value;
    bool has_value = false;
    if (at < bytes.size() && bytes[at] == '(') {
      const size_t close = bytes.find(')', at);
      if (close == std::string_view::npos) raise("incomplete format key");
      if (values.dict() == nullptr) raise("format requires a mapping");
      const Value* found = values.dict()->find(bytes.substr(at + 1, close - at - 1));
      if (found == nullptr) raise("the format key '", bytes.substr(at + 1, close - at - 1), "' is missing");
      value = *found;
      has_value = named = true;
      at = close + 1;
    }
    Spec spec;
    spec.align = '>';
    for (; at < bytes.size() && std::string_view("-+ 0#").find(bytes[at]) != std::string_view::npos; ++at) {
      if (bytes[at] == '-') spec.align = '<';
      if (bytes[at] == '0') spec.zeros = true;
      if (bytes[at] == '+' || (bytes[at] == ' ' && spec.sign == 0)) spec.sign = bytes[at];
    }
    spec.width = read_number(bytes, at);
    if (at < bytes.size() && bytes[at] == '.') {
      ++at;
      spec.precision = read_number(bytes, at);
    }
    if (at >= bytes.size()) raise("incomplete format");
    spec.type = bytes[at++];
    if (!has_value) value = next_value();
    out.append(format_value(value, spec, budget));
    check_length(out);
  }
  // Python takes whatever has items for a mapping, a list too.
  const bool takes_all = values.dict() != nullptr || values.is_undefined() ||
                         (values.sequence() != nullptr && !is_tuple && values.sequence()->indexable());
  const size_t n_given = is_tuple ? values.sequence()->items.size() : 1;
  if (!named && n_used < n_given && !takes_all) raise("not all arguments converted during string formatting");
  return make_text(std::move(out), budget);
}

namespace {

// {field!conversion:spec}, `field` a name or number
Spec read_spec(const MarkedText& format, size_t at, size_t end) {
  Spec spec;
  const std::string_view bytes = std::string_view(format.bytes).substr(0, end);
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^'; };
  if (at < end) {
    const size_t after = at + decode_utf8(bytes, at).length;
    if (after < end && is_align(bytes[after])) {
      spec.fill = format.slice(at, after);
      spec.align = bytes[after];
      at = after + 1;
    } else if (is_align(bytes[at])) {
      spec.align = bytes[at++];
    }
  }
  if (at < end && (bytes[at] == '+' || bytes[at] == ' ' || bytes[at] == '-'))
    spec.sign = bytes[at] == '-' ? 0 : bytes[at], ++at;
  if (at < end && bytes[at] == '0') spec.zeros = true, ++at;
  spec.width = read_number(bytes, at);
  if (at < end && bytes[at] == ',') spec.grouping = true, ++at;
  if (at < end && bytes[at] == '.') {
    ++at;
    spec.precision = read_number(bytes, at);
  }
  if (at < end) spec.type = bytes[at++];
  if (at < end) raise("a format of this form is not supported");
  return spec;
}

}  // namespace

MarkedText format_braces(const MarkedText& format, const std::vector<Value>& positional,
                         const std::vector<std::pair<std::string, Value>>& named, Budget& budget) {
  const std::string_view bytes = format.bytes;
  MarkedText out;
  size_t n_automatic = 0;
  for (size_t at = 0; at < bytes.size();) {
    budget.spend(1);
    const size_t brace = std::min(bytes.find_first_of("{}", at), bytes.size());
    out.append(format, at, brace);
    if (brace == bytes.size()) break;
    at = brace + 1;
    if (at < bytes.size() && bytes[at] == bytes[brace]) {
      out.append(format, brace, at);
      ++at;
      continue;
    }
    if (bytes[brace] == '}') raise("Single '}' encountered in format string");
    const size_t close = bytes.find_first_of("{}", at);
    if (close == std::string_view::npos) raise("expected '}' before end of string");
    if (bytes[close] == '{') raise("a format in a format is not supported");
    const std::string_view field = bytes.substr(at, close - at);
    const size_t colon = std::min(field.find(':'), field.size());
    const size_t mark = std::min(field.find('!'), colon);
    const std::string_view name = field.substr(0, mark);
    Spec spec = read_spec(format, at + std::min(colon + 1, field.size()), close);
    if (mark < colon) spec.type = field.substr(mark + 1, colon - mark - 1) == "r" ? 'r' : 's';
    const Value* value = nullptr;
    size_t index = n_automatic;
    const auto number = std::from_chars(name.data(), name.data() + name.size(), index);
    if (name.empty() || (number.ec == std::errc() && number.ptr == name.data() + name.size())) {
      if (name.empty()) ++n_automatic;
      if (index < positional.size()) value = &positional[index];
    } else if (name.find_first_of(".[") != std::string_view::npos) {
      raise("attributes in a format are not supported");
    } else {
      const auto found = std::find_if(named.begin(), named.end(), [&](const auto& n) { return n.first == name; });
      if (found != named.end()) value = &found->second;
    }
    if (value == nullptr) raise("the format string wants '", name, "', which is not given");
    out.append(format_value(*value, spec, budget));
    check_length(out);
    at = close + 1;
  }
  return out;
}

}  // namespace lockstep::jinja
