#include "journal/json_line.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/utf8.h"

namespace lockstep {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Eight bytes at once: true if one of them may be a quote, a backslash, a control character or not ASCII.
bool may_be_special(const char* p) {
  constexpr uint64_t kOnes = 0x0101010101010101, kHigh = 0x8080808080808080;
  uint64_t w;
  std::memcpy(&w, p, 8);
  const auto has_zero = [](uint64_t x) { return (x - kOnes) & ~x & kHigh; };
  const uint64_t control = (w - kOnes * 0x20) & ~w & kHigh;
  return ((w & kHigh) | control | has_zero(w ^ kOnes * '"') | has_zero(w ^ kOnes * '\\')) != 0;
}

// The four digits of \uXXXX, or -1.
int hex4(std::string_view text, size_t at) {
  if (at + 4 > text.size()) return -1;
  int value = 0;
  const auto [end, error] = std::from_chars(text.data() + at, text.data() + at + 4, value, 16);
  return error == std::errc{} && end == text.data() + at + 4 && text[at] != '-' ? value : -1;
}

// Power of ten of the first digit that isn't 0; only asked for numbers outside the range of double.
bool is_tiny(std::string_view number) {
  const size_t e = number.find_first_of("eE");
  const std::string_view digits = number.substr(0, e);
  int64_t exponent = 0;
  if (e != std::string_view::npos) {
    const std::string_view text = number.substr(number[e + 1] == '+' ? e + 2 : e + 1);
    if (std::from_chars(text.data(), text.data() + text.size(), exponent).ec != std::errc{}) return text.front() == '-';
    exponent = std::clamp(exponent, -(int64_t{1} << 40), int64_t{1} << 40);
  }
  const size_t lead = digits.find_first_of("123456789");
  const size_t point = std::min(digits.find('.'), digits.size());
  return lead == std::string_view::npos || exponent + static_cast<int64_t>(point) - static_cast<int64_t>(lead) < 0;
}

double to_double(std::string_view number) {
  double value = 0;
  if (std::from_chars(number.data(), number.data() + number.size(), value).ec == std::errc::result_out_of_range)
    return is_tiny(number) ? 0.0 : HUGE_VAL;
  return value;
}

}  // namespace

std::string shown(std::string_view raw) {
  constexpr size_t kMax = 60;
  if (raw.size() <= kMax) return std::string(raw);
  size_t end = kMax - 3;
  while (end > 0 && (static_cast<unsigned char>(raw[end]) & 0xC0) == 0x80) --end;
  return std::string(raw.substr(0, end)) + "...";
}

std::optional<Fault> JsonLine::parse(std::string_view text) {
  text_ = text;
  at_ = 0;
  nodes_.clear();
  open_.clear();
  fault_.reset();
  if (text.size() > kMaxLineBytes) return Fault{"line_too_long", "the line is longer than 16 MiB"};
  if (text.starts_with("\xEF\xBB\xBF"))
    refuse(0, "a byte order mark that is not at the start of the file");
  else
    parse_value();
  return fault_;
}

// ---- grammar ----

bool JsonLine::parse_value() {
  for (;;) {  // here a value is expected
    skip_space();
    if (at_ >= text_.size()) return refuse_here("a value");
    const char c = text_[at_];
    if (c == '{' || c == '[') {
      if (!open(c == '{' ? JsonKind::object : JsonKind::array)) return false;
      skip_space();
      if (at_ >= text_.size() || text_[at_] != (c == '{' ? '}' : ']')) {
        if (c == '{' && !parse_key()) return false;
        continue;
      }
      if (!close()) return false;
    } else if (!(c == '"' ? parse_string() : c == '-' || is_digit(c) ? parse_number() : parse_literal())) {
      return false;
    }
    for (;;) {  // here a value has ended
      skip_space();
      if (open_.empty()) return at_ == text_.size() || refuse(at_, "text after the end of the value");
      const bool in_object = kind(open_.back()) == JsonKind::object;
      if (at_ < text_.size() && text_[at_] == ',') {
        ++at_;
        skip_space();
        if (in_object && !parse_key()) return false;
        break;
      }
      if (at_ >= text_.size() || text_[at_] != (in_object ? '}' : ']'))
        return refuse_here(in_object ? "',' or '}'" : "',' or ']'");
      if (!close()) return false;
    }
  }
}

bool JsonLine::parse_key() {
  if (at_ >= text_.size() || text_[at_] != '"') return refuse_here("a key in double quotes");
  if (!parse_string()) return false;
  skip_space();
  if (at_ >= text_.size() || text_[at_] != ':') return refuse_here("':'");
  ++at_;
  return true;
}

bool JsonLine::open(JsonKind kind) {
  if (open_.size() == kMaxJsonDepth) return refuse(at_, concat("nested deeper than ", kMaxJsonDepth, " levels"));
  ++at_;
  open_.push_back(add(at_ - 1, kind));
  return true;
}

bool JsonLine::close() {
  ++at_;
  const NodeId container = open_.back();
  open_.pop_back();
  nodes_[container].end = static_cast<uint32_t>(at_);
  nodes_[container].next = static_cast<NodeId>(nodes_.size());
  return nodes_[container].kind == JsonKind::array || check_keys(container);
}

bool JsonLine::parse_string() {
  const size_t begin = at_++;
  bool escaped = false;
  for (;;) {
    while (at_ + 8 <= text_.size() && !may_be_special(text_.data() + at_)) at_ += 8;
    if (at_ >= text_.size()) return refuse(begin, "a string without its closing quote");
    const auto c = static_cast<unsigned char>(text_[at_]);
    if (c == '"') break;
    if (c == '\\') {
      escaped = true;
      if (!parse_escape()) return false;
    } else if (c < 0x20) {
      char name[8];
      std::snprintf(name, sizeof name, "0x%02X", c);
      return refuse(at_, concat("control character ", name, " inside a string"));
    } else if (c < 0x80) {
      ++at_;
    } else {
      const CodePoint point = decode_utf8(text_, at_);
      if (!point.valid) {
        char name[8];
        std::snprintf(name, sizeof name, "0x%02X", c);
        return refuse(at_, concat("invalid UTF-8 (byte ", name, ")"));
      }
      at_ += point.length;
    }
  }
  ++at_;
  add(begin, JsonKind::string, escaped);
  return true;
}

bool JsonLine::parse_escape() {
  const size_t begin = at_;
  const char c = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
  if (c != 'u') {
    if (c == '\0' || std::strchr("\"\\/bfnrt", c) == nullptr) return refuse(begin, "invalid escape in a string");
    at_ += 2;
    return true;
  }
  const int unit = hex4(text_, begin + 2);
  if (unit < 0) return refuse(begin, "\\u needs four hexadecimal digits");
  at_ += 6;
  if (unit >= 0xDC00 && unit <= 0xDFFF) return refuse(begin, concat("lone surrogate ", text_.substr(begin, 6)));
  if (unit >= 0xD800 && unit <= 0xDBFF) {
    const int low = text_.substr(at_, 2) == "\\u" ? hex4(text_, at_ + 2) : -1;
    if (low < 0xDC00 || low > 0xDFFF) return refuse(begin, concat("lone surrogate ", text_.substr(begin, 6)));
    at_ += 6;
  }
  return true;
}

bool JsonLine::parse_number() {
  const size_t begin = at_;
  const auto digits = [&] {
    const size_t from = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    return at_ > from;
  };
  if (text_[at_] == '-') ++at_;
  if (text_.substr(at_).starts_with("Infinity")) return refuse(begin, "-Infinity is not JSON");
  const size_t first = at_;
  if (!digits()) return refuse_here("a digit");
  if (text_[first] == '0' && at_ > first + 1) return refuse(begin, "a number with a leading zero");
  bool integral = true;
  if (at_ < text_.size() && text_[at_] == '.') {
    integral = false;
    ++at_;
    if (!digits()) return refuse_here("a digit");
  }
  if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
    integral = false;
    ++at_;
    if (at_ < text_.size() && (text_[at_] == '+' || text_[at_] == '-')) ++at_;
    if (!digits()) return refuse_here("a digit");
  }
  const std::string_view number = text_.substr(begin, at_ - begin);
  if (integral && number.size() > 18) {  // what no 64-bit type holds would reach templates with other digits
    int64_t as_signed;
    uint64_t as_unsigned;
    const char *from = number.data(), *to = from + number.size();
    if (std::from_chars(from, to, as_signed).ec != std::errc{} &&
        (*from == '-' || std::from_chars(from, to, as_unsigned).ec != std::errc{}))
      return refuse(begin, concat("number out of range: ", shown(number)));
  } else if (!integral && !std::isfinite(to_double(number))) {
    return refuse(begin, concat("number out of range: ", shown(number)));
  }
  add(begin, JsonKind::number);
  return true;
}

bool JsonLine::parse_literal() {
  const std::string_view rest = text_.substr(at_);
  const auto take = [&](std::string_view word, JsonKind kind) {
    at_ += word.size();
    add(at_ - word.size(), kind);
    return true;
  };
  if (rest.starts_with("true")) return take("true", JsonKind::boolean);
  if (rest.starts_with("false")) return take("false", JsonKind::boolean);
  if (rest.starts_with("null")) return take("null", JsonKind::null);
  for (const std::string_view word : {"NaN", "Infinity", "None", "True", "False"})
    if (rest.starts_with(word)) return refuse(at_, concat(word, " is not JSON"));
  return refuse_here("a value");
}

void JsonLine::skip_space() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r' || text_[at_] == '\n')) ++at_;
}

NodeId JsonLine::add(size_t begin, JsonKind kind, bool escaped) {
  const auto id = static_cast<NodeId>(nodes_.size());
  nodes_.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(at_), id + 1, kind, escaped});
  return id;
}

bool JsonLine::refuse(size_t at, std::string what) {
  fault_ = Fault{"invalid_json", concat("column ", at + 1, ": ", what)};
  return false;
}

bool JsonLine::refuse_here(std::string_view expected) {
  if (at_ >= text_.size()) return refuse(at_, concat("the line ends where ", expected, " should follow"));
  const auto c = static_cast<unsigned char>(text_[at_]);
  char found[16];
  std::snprintf(found, sizeof found, c >= 0x20 && c < 0x7F ? "'%c'" : "byte 0x%02X", c);
  return refuse(at_, concat("expected ", expected, ", found ", found));
}

// Keys are compared as decoded text: "a" and "\u0061" are the same. The later one is named.
bool JsonLine::check_keys(NodeId object) {
  keys_.clear();
  decoded_keys_.clear();
  for (NodeId key = first(object); key < after(object); key = after(key + 1)) keys_.emplace_back(decoded(key), key);
  NodeId twice = 0;
  if (keys_.size() <= 8) {
    for (size_t i = 1; i < keys_.size() && twice == 0; ++i)
      for (size_t j = 0; j < i; ++j)
        if (keys_[i].first == keys_[j].first) twice = keys_[i].second;
  } else {
    std::sort(keys_.begin(), keys_.end());
    for (size_t i = 1; i < keys_.size(); ++i)
      if (keys_[i].first == keys_[i - 1].first && (twice == 0 || keys_[i].second < twice)) twice = keys_[i].second;
  }
  return twice == 0 || refuse(offset(twice), concat("duplicate key ", shown(raw(twice))));
}

std::string_view JsonLine::decoded(NodeId key) {
  const std::string_view quoted = raw(key);
  return nodes_[key].escaped ? decoded_keys_.emplace_back(string(key)) : quoted.substr(1, quoted.size() - 2);
}

// ---- reads ----

std::optional<NodeId> JsonLine::find(NodeId object, std::string_view key) const {
  for (NodeId k = first(object); k < after(object); k = after(k + 1))
    if (equals(k, key)) return kind(k + 1) == JsonKind::null ? std::nullopt : std::optional(k + 1);
  return std::nullopt;
}

bool JsonLine::equals(NodeId n, std::string_view text) const {
  const std::string_view quoted = raw(n);
  return nodes_[n].escaped ? string(n) == text : quoted.substr(1, quoted.size() - 2) == text;
}

std::string JsonLine::string(NodeId n) const {
  std::string_view in = raw(n);
  in = in.substr(1, in.size() - 2);
  if (!nodes_[n].escaped) return std::string(in);
  std::string out;
  out.reserve(in.size());
  for (size_t at = 0; at < in.size();) {
    const size_t escape = std::min(in.find('\\', at), in.size());
    out.append(in.substr(at, escape - at));
    if ((at = escape) == in.size()) break;
    const char c = in[at + 1];
    at += 2;
    if (c != 'u') {
      out += c == 'b' ? '\b' : c == 'f' ? '\f' : c == 'n' ? '\n' : c == 'r' ? '\r' : c == 't' ? '\t' : c;
      continue;
    }
    auto point = static_cast<uint32_t>(hex4(in, at));
    at += 4;
    if (point >= 0xD800 && point <= 0xDBFF) {
      point = 0x10000 + ((point - 0xD800) << 10) + (static_cast<uint32_t>(hex4(in, at + 2)) - 0xDC00);
      at += 6;
    }
    append_utf8(out, point);
  }
  return out;
}

double JsonLine::number(NodeId n) const { return to_double(raw(n)); }

std::optional<int64_t> JsonLine::integer(NodeId n) const {
  const std::string_view text = raw(n);
  if (text.find_first_of(".eE") == std::string_view::npos) {
    int64_t value = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc{}) return std::nullopt;
    return value;
  }
  const double value = number(n);
  if (value != std::trunc(value) || std::abs(value) > 0x1p53) return std::nullopt;
  return static_cast<int64_t>(value);
}

}  // namespace lockstep
