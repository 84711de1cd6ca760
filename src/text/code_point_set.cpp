#include "text/code_point_set.h"

#include <algorithm>
#include <string>

#include "base/error.h"

namespace lockstep {
namespace {

constexpr uint32_t kLast = 0x10FFFF;

struct Property {
  std::string_view name;
  ClassMask classes;
};
constexpr Property kProperties[] = {
    {"L", kLetter}, {"Lu", kLu},    {"Ll", kLl},         {"Lt", kLt},    {"Lm", kLm},   {"Lo", kLo},          {"M", kMark},
    {"N", kNumber}, {"Nd", kDigit}, {"P", kPunctuation}, {"S", kSymbol}, {"Han", kHan}, {"Script=Han", kHan},
};

}  // namespace

CodePointRanges normalised(CodePointRanges ranges) {
  std::sort(ranges.begin(), ranges.end());
  CodePointRanges out;
  for (const auto& range : ranges) {
    if (!out.empty() && range.first <= out.back().second + 1) {
      out.back().second = std::max(out.back().second, range.second);
    } else {
      out.push_back(range);
    }
  }
  return out;
}

CodePointRanges complement(const CodePointRanges& ranges) {
  CodePointRanges out;
  uint32_t next = 0;
  for (const auto& [first, last] : ranges) {
    if (first > next) out.emplace_back(next, first - 1);
    next = last + 1;
  }
  if (next <= kLast) out.emplace_back(next, kLast);
  return out;
}

CodePointRanges intersection(const CodePointRanges& a, const CodePointRanges& b) {
  CodePointRanges both = complement(a);
  const CodePointRanges not_b = complement(b);
  both.insert(both.end(), not_b.begin(), not_b.end());
  return complement(normalised(std::move(both)));
}

std::optional<CodePointRanges> fold_ascii(const CodePointRanges& ranges) {
  CodePointRanges out = ranges;
  const CodePointRanges cased = intersection(ranges, ranges_of(kLu | kLl | kLt));
  if (!cased.empty() && cased.back().second > 'z') return std::nullopt;
  for (const auto& [first, last] : cased) {
    for (uint32_t c = first; c <= last; ++c) {
      const uint32_t lower = c | 0x20;
      out.emplace_back(lower, lower);
      out.emplace_back(lower & ~0x20u, lower & ~0x20u);
      if (lower == 's') out.emplace_back(0x17F, 0x17F);
      if (lower == 'k') out.emplace_back(0x212A, 0x212A);
    }
  }
  return normalised(std::move(out));
}

CodePointSet make_set(CodePointRanges ranges) {
  CodePointSet set;
  set.ranges = std::move(ranges);
  for (const auto& [first, last] : set.ranges)
    for (uint32_t c = first; c <= last && c < set.ascii.size(); ++c) set.ascii[c] = true;
  return set;
}

void ClassParser::unsupported(std::string_view what, size_t at) const {
  fail(ExitCode::unreadable, "tokenizer: the pattern ", pattern_, " has ", what, " at byte ", at, ", which isn't supported");
}

uint32_t ClassParser::hex(size_t n_digits) {
  uint32_t value = 0;
  for (size_t i = 0; i < n_digits; ++i, ++at_) {
    const char c = at_ < pattern_.size() ? pattern_[at_] : '\0';
    const int digit = c >= '0' && c <= '9' ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : -1;
    if (digit < 0) unsupported("a bad code point", at_);
    value = value * 16 + static_cast<uint32_t>(digit);
  }
  if (value > kLast) unsupported("a bad code point", at_);
  return value;
}

// \p{Name}, \P{Name}, \p{^Name}: from the brace.
CodePointRanges ClassParser::property(bool negative) {
  const size_t start = at_;
  const size_t end = pattern_.find('}', at_);
  if (at_ >= pattern_.size() || pattern_[at_] != '{' || end == std::string_view::npos) unsupported("a property", start);
  std::string_view name = pattern_.substr(at_ + 1, end - at_ - 1);
  if (name.starts_with('^')) {
    name.remove_prefix(1);
    negative = !negative;
  }
  at_ = end + 1;
  for (const Property& known : kProperties)
    if (known.name == name) return negative ? complement(ranges_of(known.classes)) : ranges_of(known.classes);
  unsupported(concat("the property '", name, "'"), start);
}

CodePointRanges ClassParser::escape(uint32_t* literal) {
  const size_t start = at_++;
  if (at_ >= pattern_.size()) unsupported("a backslash at its end", start);
  const Char c = char_at(pattern_, at_);
  at_ = c.next;
  uint32_t value = c.value;
  switch (c.value) {
    case 's':
      return ranges_of(kSpace);
    case 'S':
      return complement(ranges_of(kSpace));
    case 'd':
      return ranges_of(kDigit);
    case 'D':
      return complement(ranges_of(kDigit));
    case 'w':
      return ranges_of(kWord);
    case 'W':
      return complement(ranges_of(kWord));
    case 'p':
      return property(false);
    case 'P':
      return property(true);
    case 'n':
      value = '\n';
      break;
    case 'r':
      value = '\r';
      break;
    case 't':
      value = '\t';
      break;
    case 'f':
      value = '\f';
      break;
    case 'v':
      value = '\v';
      break;
    case 'a':
      value = '\a';
      break;
    case 'e':
      value = 0x1B;
      break;
    case 'u':
      value = hex(4);
      break;
    case 'x':
      if (at_ < pattern_.size() && pattern_[at_] == '{') {
        const size_t end = pattern_.find('}', at_++);
        if (end == std::string_view::npos || end == at_ || end - at_ > 6) unsupported("a bad code point", start);
        value = hex(end - at_);
        ++at_;
      } else {
        value = hex(2);
        if (value > 0x7F) unsupported("a byte above 7f", start);  // a raw byte of UTF-8 there
      }
      break;
    default:
      if (c.value > 0x7F || (c.value >= '0' && c.value <= '9') || (c.value | 0x20) - 'a' < 26u)
        unsupported(concat("the escape '", pattern_.substr(start, at_ - start), "'"), start);
  }
  if (literal != nullptr) *literal = value;
  return {{value, value}};
}

CodePointRanges ClassParser::bracket() {
  const size_t start = at_++;
  if (--max_depth_ < 0) unsupported("classes nested too deeply", start);
  const bool negative = at_ < pattern_.size() && pattern_[at_] == '^';
  at_ += negative;
  CodePointRanges all, left;
  bool has_left = false;
  const auto close_part = [&] {  // before && or the end
    const CodePointRanges part = normalised(std::move(all));
    left = has_left ? intersection(left, part) : part;
    has_left = true;
    all.clear();
  };
  for (bool first = true;; first = false) {
    if (at_ >= pattern_.size()) unsupported("a class without end", start);
    const std::string_view rest = pattern_.substr(at_);
    if (rest.starts_with(']')) {
      if (first) unsupported("an empty class", start);
      ++at_;
      break;
    }
    if (rest.starts_with("&&")) {
      at_ += 2;
      close_part();
      continue;
    }
    if (rest.starts_with("[:")) unsupported("a class by a POSIX name", at_);
    CodePointRanges item;
    uint32_t literal = kLast + 1;  // none
    if (rest.starts_with('[')) {
      item = bracket();
    } else if (rest.starts_with('\\')) {
      item = escape(&literal);
    } else {
      const Char c = char_at(pattern_, at_);
      at_ = c.next;
      literal = c.value;
      item = {{literal, literal}};
    }
    const std::string_view after = pattern_.substr(at_);
    if (literal <= kLast && after.size() > 1 && after[0] == '-' && after[1] != ']') {  // a range
      ++at_;
      uint32_t last = kLast + 1;
      if (after[1] == '\\') {
        escape(&last);
      } else if (after[1] != '[') {
        const Char c = char_at(pattern_, at_);
        at_ = c.next;
        last = c.value;
      }
      if (last > kLast || last < literal) unsupported("a bad range", at_);
      item = {{literal, last}};
    }
    all.insert(all.end(), item.begin(), item.end());
  }
  close_part();
  ++max_depth_;
  return negative ? complement(left) : left;
}

}  // namespace lockstep
