// Sets of code points as sorted ranges, and the parts of regular expressions that write one: [..] and \p{..}. Used by
// pattern_parse.cpp only.
//   ClassParser parser(R"([^\s\p{L}&&[^a]])", 0, 64); CodePointRanges r = parser.bracket();
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "text/pattern.h"

namespace lockstep {

CodePointRanges normalised(CodePointRanges ranges);  // sorted, joined
CodePointRanges complement(const CodePointRanges& ranges);
CodePointRanges intersection(const CodePointRanges& a, const CodePointRanges& b);

// With the other case of each ASCII letter (and U+017F for s, U+212A for k, which fold to them); none where the set has
// other cased letters.
std::optional<CodePointRanges> fold_ascii(const CodePointRanges& ranges);

CodePointSet make_set(CodePointRanges ranges);

class ClassParser {
 public:
  ClassParser(std::string_view pattern, size_t at, int max_depth) : pattern_(pattern), at_(at), max_depth_(max_depth) {}

  CodePointRanges bracket();                  // from '['
  CodePointRanges escape(uint32_t* literal);  // from '\\'; *literal: the character, if it is one
  size_t position() const { return at_; }     // past what was parsed

 private:
  [[noreturn]] void unsupported(std::string_view what, size_t at) const;
  CodePointRanges property(bool negative);
  uint32_t hex(size_t n_digits);

  std::string_view pattern_;
  size_t at_;
  int max_depth_;
};

}  // namespace lockstep
