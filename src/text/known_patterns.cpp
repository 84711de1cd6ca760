#include "text/known_patterns.h"

#include "base/error.h"

namespace lockstep {
namespace {

struct Cursor {
  std::string_view text;
  const UnicodeClasses& classes = unicode_classes();

  ClassMask class_at(size_t at, size_t& next) const {
    const Char c = char_at(text, at);
    next = c.next;
    return classes.of(c.value);
  }
  // End of the run of characters from `at` that have one of `wanted` (or, if `absent`, none of them).
  size_t run(size_t at, ClassMask wanted, bool absent = false) const {
    size_t next = at;
    while (at < text.size() && ((class_at(at, next) & wanted) == 0) == absent) at = next;
    return at;
  }
  bool is(size_t at, char c) const { return at < text.size() && text[at] == c; }
  bool is_newline(size_t at) const { return is(at, '\r') || is(at, '\n'); }
};

// 's 't 're 've 'm 'll 'd at `at`; its end, or `at`. Folding case, U+017F is an s too.
size_t contraction(const Cursor& c, size_t at, bool fold_case) {
  if (!c.is(at, '\'') || at + 1 >= c.text.size()) return at;
  const auto letter = [&](size_t i) {
    if (i >= c.text.size()) return '\0';
    const char byte = c.text[i];
    return fold_case && byte >= 'A' && byte <= 'Z' ? static_cast<char>(byte | 0x20) : byte;
  };
  const char first = letter(at + 1), second = letter(at + 2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
  if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l')) return at + 3;
  if (fold_case && c.text.substr(at + 1).starts_with("\u017F")) return at + 3;
  return at;
}

// \s+(?!\S)|\s+ from a space: all but the last if something follows them.
size_t spaces(const Cursor& c, size_t begin) {
  const size_t end = c.run(begin, kSpace);
  if (end == c.text.size()) return end;
  const size_t last = char_before(c.text, end);
  return last > begin ? last : end;
}

// \s*[\r\n]+|\s+(?!\S)|\s+ from a space: up to the last newline of the run, if it has one.
size_t spaces_or_lines(const Cursor& c, size_t begin) {
  size_t next = begin, newline_end = begin;
  for (size_t at = begin; at < c.text.size() && (c.class_at(at, next) & kSpace); at = next)
    if (c.is_newline(at)) newline_end = next;
  return newline_end > begin ? newline_end : spaces(c, begin);
}

size_t match_gpt2(const KnownOptions&, std::string_view text, size_t begin) {
  const Cursor c{text};
  if (const size_t end = contraction(c, begin, false); end > begin) return end;
  const size_t word = begin + c.is(begin, ' ');
  if (word < text.size()) {
    size_t next = word;
    const ClassMask first = c.class_at(word, next);
    if (first & kLetter) return c.run(next, kLetter);
    if (first & kNumber) return c.run(next, kNumber);
    if ((first & kSpace) == 0) return c.run(next, kSpace | kLetter | kNumber, true);
  }
  return spaces(c, begin);
}

// From the end of the alternatives for words: \p{N}{1,max} | ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
size_t match_no_word(const Cursor& c, const KnownOptions& options, size_t begin) {
  size_t next = begin;
  if (c.class_at(begin, next) & kNumber) {
    for (int n = 1; n < options.max_digits && next < c.text.size(); ++n) {
      size_t after = next;
      if ((c.class_at(next, after) & kNumber) == 0) break;
      next = after;
    }
    return next;
  }
  const ClassMask no_symbols = kSpace | kNumber | options.letters;
  const size_t symbols = begin + c.is(begin, ' ');
  size_t end = c.run(symbols, no_symbols, true);
  if (end > symbols) {
    while (c.is_newline(end) || (options.slash_ends_symbols && c.is(end, '/'))) ++end;
    return end;
  }
  return spaces_or_lines(c, begin);
}

// (?i:'s|..)|[^\r\n\p{L}\p{N}]?\p{L}+|..
size_t match_cl100k(const KnownOptions& options, std::string_view text, size_t begin) {
  const Cursor c{text};
  if (const size_t end = contraction(c, begin, true); end > begin) return end;
  size_t next = begin;
  const ClassMask first = c.class_at(begin, next);
  if ((first & (kLetter | kNumber)) == 0 && !c.is_newline(begin)) {
    const size_t end = c.run(next, options.letters);
    if (end > next) return end;
  }
  if (first & options.letters) return c.run(next, options.letters);
  return match_no_word(c, options, begin);
}

constexpr ClassMask kUpper = kLu | kLt | kLm | kLo | kMark;
constexpr ClassMask kLower = kLl | kLm | kLo | kMark;

// [upper]*[lower]+ at `begin`, or with `all_upper` [upper]+[lower]* where the former does not match; the end, or `begin`.
size_t cased_word(const Cursor& c, size_t begin, bool all_upper) {
  size_t at = begin, next = begin, both_end = begin;
  while (at < c.text.size()) {
    const ClassMask mask = c.class_at(at, next);
    if ((mask & kUpper) == 0) break;
    if (mask & kLower) both_end = next;  // the run of upper may give back all after this, but not this
    at = next;
  }
  if (all_upper) return at;
  const size_t end = c.run(at, kLower);
  return end > at ? end : both_end;
}

// [^\r\n\p{L}\p{N}]?[upper]*[lower]+(?i:'s|..)?|[^\r\n\p{L}\p{N}]?[upper]+[lower]*(?i:'s|..)?|..
size_t match_o200k(const KnownOptions& options, std::string_view text, size_t begin) {
  const Cursor c{text};
  size_t next = begin;
  const ClassMask first = c.class_at(begin, next);
  const bool may_lead = (first & (kLetter | kNumber)) == 0 && !c.is_newline(begin);
  for (const bool all_upper : {false, true}) {
    for (const size_t word : {next, begin}) {
      if (word == next && !may_lead) continue;
      const size_t end = cased_word(c, word, all_upper);
      if (end > word) return options.contractions ? contraction(c, end, true) : end;
    }
  }
  KnownOptions rest = options;
  rest.letters = kLetter;
  return match_no_word(c, rest, begin);
}

// clang-format off
const KnownPattern kKnown[] = {
    {"gpt2", R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", match_gpt2, {}},
    {"llama3", R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     match_cl100k, {.max_digits = 3}},
    {"qwen2", R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     match_cl100k, {.max_digits = 1}},
    {"qwen35", R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     match_cl100k, {.letters = kLetter | kMark, .max_digits = 1}},
    {"o200k", R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     match_o200k, {.max_digits = 3, .slash_ends_symbols = true}},
    {"tekken", R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     match_o200k, {.max_digits = 1, .contractions = false, .slash_ends_symbols = true}},
};
// clang-format on

}  // namespace

const KnownPattern* find_known_pattern(std::string_view regex) {
  for (const KnownPattern& known : kKnown)
    if (known.regex == regex) return &known;
  return nullptr;
}

const KnownPattern& known_pattern(std::string_view name) {
  for (const KnownPattern& known : kKnown)
    if (known.name == name) return known;
  fail(ExitCode::other, "no known pattern ", name);
}

}  // namespace lockstep
