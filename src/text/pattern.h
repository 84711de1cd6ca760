// Regular expressions of tokenizer files, with the meaning they have there (Oniguruma syntax, the classes of
// unicode_classes.h), matched by backtracking with a budget: a hostile pattern or text ends in an Error, not in hours.
// Not a general engine: what it does not know, it refuses by name when it is built. Known patterns have faster matchers
// (known_patterns.h).
//   Pattern p(R"(\p{N}{1,3}|\s+(?!\S))");   PatternBudget budget(text.size());   p.for_each_match(text, budget, use);
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "text/unicode_classes.h"

namespace lockstep {

struct CodePointSet {
  CodePointRanges ranges;         // ascending, neither overlapping nor adjacent
  std::array<bool, 128> ascii{};  // the same, for speed
  bool has(uint32_t code_point) const;
};

struct PatternInstruction {
  enum class Op : uint8_t {
    set,     // one character of `set`
    repeat,  // low..high characters of `set`
    split,   // try `first`, then `second` (both relative)
    jump,    // to `first` (relative)
    mark,    // remember the position in `slot`
    check,   // past the next instruction if the position is still that of `slot`
    look,    // the body up to `accept` matches here (or not, if `negative`); go on at `first`, at the same position
    atomic,  // as look, but take what it matched
    line_begin,
    line_end,
    text_begin,
    text_end,
    word_border,
    no_word_border,
    accept,
  };
  enum class Greed : uint8_t { greedy, lazy, possessive };
  Op op;
  Greed greed = Greed::greedy;
  bool negative = false;
  int32_t first = 0, second = 0;
  int32_t set = 0, slot = 0;
  uint32_t low = 0, high = 0;
};

// Steps that matching may take, over all matches in one text; linear in the text.
struct PatternBudget {
  explicit PatternBudget(size_t text_bytes) : steps(1'000'000 + 500 * uint64_t{text_bytes}) {}
  uint64_t steps;
};

class Pattern {
 public:
  explicit Pattern(std::string_view pattern);  // throws Error (unreadable) that quotes the part it does not support

  // Leftmost matches, not overlapping, in order; an empty one only where none has just ended. Anchors and look-around see
  // `text` alone. Throws Error (unreadable) when the budget is spent.
  void for_each_match(std::string_view text, PatternBudget& budget,
                      const std::function<void(size_t begin, size_t end)>& use) const;

 private:
  std::string source_;
  std::vector<PatternInstruction> program_;
  std::vector<CodePointSet> sets_;
  int32_t n_slots_ = 0;
};

// Of pattern_parse.cpp.
struct PatternProgram {
  std::vector<PatternInstruction> instructions;
  std::vector<CodePointSet> sets;
  int32_t n_slots = 0;
};
PatternProgram parse_pattern(std::string_view pattern);

}  // namespace lockstep
