// Regular expression -> program. Fragments hold relative jumps, so that they can be joined and copied freely.
#include <algorithm>
#include <limits>
#include <optional>

#include "base/error.h"
#include "base/utf8.h"
#include "text/code_point_set.h"
#include "text/pattern.h"

namespace lockstep {
namespace {

using Op = PatternInstruction::Op;
using Greed = PatternInstruction::Greed;
using Fragment = std::vector<PatternInstruction>;

constexpr size_t kMaxPatternBytes = 16384;
constexpr size_t kMaxInstructions = 8192;
constexpr uint32_t kMaxCount = 1000;
constexpr int kMaxDepth = 64;
constexpr uint32_t kUnlimited = std::numeric_limits<uint32_t>::max();

class Parser {
 public:
  explicit Parser(std::string_view pattern) : pattern_(pattern) {
    if (pattern.size() > kMaxPatternBytes) fail(ExitCode::unreadable, "tokenizer: a pattern of ", pattern.size(), " bytes");
    if (find_invalid_utf8(pattern) != std::string_view::npos) unsupported("bytes that are no UTF-8", 0);
  }

  PatternProgram parse() {
    PatternProgram program;
    program.instructions = alternatives(0);
    if (at_ < pattern_.size()) unsupported("an unmatched ')'", at_);
    program.instructions.push_back({.op = Op::accept});
    program.sets = std::move(sets_);
    program.n_slots = n_slots_;
    return program;
  }

 private:
  [[noreturn]] void unsupported(std::string_view what, size_t at) const {
    fail(ExitCode::unreadable, "tokenizer: the pattern ", pattern_, " has ", what, " at byte ", at, ", which isn't supported");
  }
  bool more() const { return at_ < pattern_.size(); }
  bool next_is(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  bool take(std::string_view text) {
    if (!next_is(text)) return false;
    at_ += text.size();
    return true;
  }
  uint32_t take_char() {
    const Char c = char_at(pattern_, at_);
    at_ = c.next;
    return c.value;
  }
  static int32_t length(const Fragment& fragment) { return static_cast<int32_t>(fragment.size()); }
  void append(Fragment& to, const Fragment& more) const {
    if (to.size() + more.size() > kMaxInstructions) unsupported("too many repetitions", at_);
    to.insert(to.end(), more.begin(), more.end());
  }
  Fragment set_fragment(CodePointRanges ranges) {
    if (ignore_case_) {
      const auto folded = fold_ascii(ranges);
      if (!folded) unsupported("a class under (?i) with more than ASCII letters", at_);
      ranges = *folded;
    }
    sets_.push_back(make_set(std::move(ranges)));
    return {{.op = Op::set, .set = static_cast<int32_t>(sets_.size()) - 1}};
  }

  Fragment alternatives(int depth) {
    if (depth > kMaxDepth) unsupported("groups nested too deeply", at_);
    const bool outer_case = ignore_case_;
    std::vector<Fragment> branches{sequence(depth)};
    while (take("|")) branches.push_back(sequence(depth));
    ignore_case_ = outer_case;
    Fragment all = std::move(branches.back());
    for (size_t i = branches.size() - 1; i-- > 0;) {  // split(this, rest) this jump(past rest) rest
      Fragment joined{{.op = Op::split, .first = 1, .second = length(branches[i]) + 2}};
      append(joined, branches[i]);
      joined.push_back({.op = Op::jump, .first = length(all) + 1});
      append(joined, all);
      all = std::move(joined);
    }
    return all;
  }

  Fragment sequence(int depth) {
    Fragment all;
    uint32_t last_literal = 0;
    while (more() && !next_is("|") && !next_is(")")) {
      const size_t start = at_;
      uint32_t literal = 0;
      Fragment atom = atom_at(depth, literal);
      // Full case folding joins letters: (?i:ss) also matches U+00DF. Refused, since no real pattern needs it.
      const std::string pair{static_cast<char>(last_literal | 0x20), static_cast<char>(literal | 0x20)};
      if (ignore_case_ && (pair == "ss" || pair == "st" || pair == "ff" || pair == "fi" || pair == "fl"))
        unsupported("letters under (?i) that fold together", start);
      last_literal = literal < 128 ? literal : 0;
      append(all, quantified(std::move(atom), start));
    }
    return all;
  }

  Fragment atom_at(int depth, uint32_t& literal) {
    const size_t start = at_;
    if (take("(")) return group(depth, start);
    if (next_is("[")) {
      ClassParser parser(pattern_, at_, kMaxDepth);
      CodePointRanges ranges = parser.bracket();
      at_ = parser.position();
      return set_fragment(std::move(ranges));
    }
    if (take(".")) return set_fragment(complement({{'\n', '\n'}}));
    if (take("^")) return {{.op = Op::line_begin}};
    if (take("$")) return {{.op = Op::line_end}};
    if (take("\\b")) return {{.op = Op::word_border}};
    if (take("\\B")) return {{.op = Op::no_word_border}};
    if (take("\\A")) return {{.op = Op::text_begin}};
    if (take("\\z")) return {{.op = Op::text_end}};
    if (next_is("\\")) {
      ClassParser parser(pattern_, at_, kMaxDepth);
      CodePointRanges ranges = parser.escape(&literal);
      at_ = parser.position();
      return set_fragment(std::move(ranges));
    }
    if (next_is("*") || next_is("+") || next_is("?")) unsupported("a quantifier of nothing", start);
    literal = take_char();
    return set_fragment({{literal, literal}});
  }

  Fragment group(int depth, size_t start) {
    const bool outer_case = ignore_case_;
    Op around = Op::accept;  // none
    bool negative = false;
    if (take("?:")) {
    } else if (take("?=")) {
      around = Op::look;
    } else if (take("?!")) {
      around = Op::look;
      negative = true;
    } else if (take("?>")) {
      around = Op::atomic;
    } else if (take("?i:")) {
      ignore_case_ = true;
    } else if (take("?-i:")) {
      ignore_case_ = false;
    } else if (take("?i)")) {  // for the rest of the group around it, alternatives included
      ignore_case_ = true;
      return alternatives(depth + 1);
    } else if (next_is("?")) {
      unsupported("a group of this kind", start);
    }
    Fragment body = alternatives(depth + 1);
    ignore_case_ = outer_case;
    if (!take(")")) unsupported("a group without end", start);
    return around == Op::accept ? body : wrapped(around, negative, body);
  }

  Fragment wrapped(Op op, bool negative, const Fragment& body) const {
    Fragment all{{.op = op, .negative = negative, .first = length(body) + 2}};
    append(all, body);
    all.push_back({.op = Op::accept});
    return all;
  }

  uint32_t number() {
    uint32_t value = 0;
    const size_t start = at_;
    for (; more() && pattern_[at_] >= '0' && pattern_[at_] <= '9'; ++at_) {
      value = value * 10 + static_cast<uint32_t>(pattern_[at_] - '0');
      if (value > kMaxCount) unsupported("a count above 1000", start);
    }
    return value;
  }

  // {n}, {n,}, {n,m}, {,m}; a brace of another form is a character.
  bool take_braces(uint32_t& low, uint32_t& high) {
    const size_t start = at_;
    if (!take("{")) return false;
    const size_t digits = at_;
    low = number();
    const bool has_low = at_ > digits;
    high = low;
    bool ok = has_low;
    if (take(",")) {
      const size_t more_digits = at_;
      high = number();
      const bool has_high = at_ > more_digits;
      if (!has_high) high = kUnlimited;
      ok = has_low || has_high;
    }
    if (ok && take("}")) {
      if (high < low) unsupported("a count from high to low", start);
      return true;
    }
    at_ = start;
    return false;
  }

  Fragment quantified(Fragment atom, size_t start) {
    for (bool first = true;; first = false) {
      uint32_t low = 0, high = 0;
      bool braces = false;
      if (take("*")) {
        high = kUnlimited;
      } else if (take("+")) {
        low = 1, high = kUnlimited;
      } else if (take("?")) {
        high = 1;
      } else if (take_braces(low, high)) {
        braces = true;
      } else {
        return atom;
      }
      if (!first) unsupported("a quantifier of a quantifier", start);
      Greed greed = Greed::greedy;
      if (take("?")) {
        greed = Greed::lazy;
      } else if (next_is("+")) {
        if (braces) unsupported("'+' after a count", at_);
        take("+");
        greed = Greed::possessive;
      }
      if (braces && greed == Greed::lazy && low == high) unsupported("'?' after a fixed count", start);
      atom = repeated(atom, low, high, greed);
    }
  }

  Fragment repeated(const Fragment& atom, uint32_t low, uint32_t high, Greed greed) {
    if (atom.size() == 1 && atom[0].op == Op::set)
      return {{.op = Op::repeat, .greed = greed, .set = atom[0].set, .low = low, .high = high}};
    if (greed == Greed::possessive) return wrapped(Op::atomic, false, repeated(atom, low, high, Greed::greedy));
    const auto split = [&](int32_t past) {  // into the body at 1, or past it
      return greed == Greed::greedy ? PatternInstruction{.op = Op::split, .first = 1, .second = past}
                                    : PatternInstruction{.op = Op::split, .first = past, .second = 1};
    };
    Fragment all;
    for (uint32_t i = 0; i < low; ++i) append(all, atom);
    if (high == kUnlimited) {
      const int32_t slot = n_slots_++;  // split mark body check jump: an empty round ends the loop
      all.push_back(split(length(atom) + 4));
      all.push_back({.op = Op::mark, .slot = slot});
      append(all, atom);
      all.push_back({.op = Op::check, .slot = slot});
      all.push_back({.op = Op::jump, .first = -(length(atom) + 3)});
      return all;
    }
    Fragment rest;  // each further one is optional, and only after the one before
    for (uint32_t i = low; i < high; ++i) {
      Fragment outer{split(length(atom) + length(rest) + 1)};
      append(outer, atom);
      append(outer, rest);
      rest = std::move(outer);
    }
    append(all, rest);
    return all;
  }

  std::string_view pattern_;
  size_t at_ = 0;
  bool ignore_case_ = false;
  std::vector<CodePointSet> sets_;
  int32_t n_slots_ = 0;
};

}  // namespace

PatternProgram parse_pattern(std::string_view pattern) { return Parser(pattern).parse(); }

}  // namespace lockstep
