// Character classes exactly as Hugging Face `tokenizers` sees them (Unicode 16, by the library's own three notions of a
// word, a digit and punctuation): what the pre-tokenizers' patterns are made of. Not for other text handling.
//   const UnicodeClasses& classes = unicode_classes();   classes.of(0x41) & kLetter
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

using ClassMask = uint16_t;

// The order of bits is that of make_unicode_classes.py.
inline constexpr ClassMask kLu = 1 << 0, kLl = 1 << 1, kLt = 1 << 2, kLm = 1 << 3, kLo = 1 << 4;
inline constexpr ClassMask kMark = 1 << 5, kNumber = 1 << 6, kPunctuation = 1 << 7, kSymbol = 1 << 8;
inline constexpr ClassMask kSpace = 1 << 9;              // \s
inline constexpr ClassMask kDigit = 1 << 10;             // \d
inline constexpr ClassMask kWord = 1 << 11;              // \w
inline constexpr ClassMask kHan = 1 << 12;               // \p{Han}
inline constexpr ClassMask kSplitPunctuation = 1 << 13;  // the pre-tokenizer Punctuation
inline constexpr ClassMask kSplitDigit = 1 << 14;        // the pre-tokenizer Digits
inline constexpr ClassMask kAddedTokenWord = 1 << 15;    // next to an added token with single_word
inline constexpr ClassMask kLetter = kLu | kLl | kLt | kLm | kLo;

class UnicodeClasses {
 public:
  UnicodeClasses();

  ClassMask of(uint32_t code_point) const {  // code_point <= 0x10FFFF
    return masks_[(size_t{index_[code_point >> kShift]} << kShift) + (code_point & (kBlock - 1))];
  }

 private:
  static constexpr uint32_t kShift = 7, kBlock = 1 << kShift;
  std::array<uint16_t, 0x110000 / kBlock> index_{};  // block of code points -> block of masks
  std::vector<ClassMask> masks_;                     // [n_blocks, kBlock] distinct blocks
};

const UnicodeClasses& unicode_classes();  // built at the first call

// The code points that have one of `classes`: inclusive ranges, ascending, not adjacent.
using CodePointRanges = std::vector<std::pair<uint32_t, uint32_t>>;
CodePointRanges ranges_of(ClassMask classes);

// The code point at `at` of valid UTF-8, and where the next begins.
struct Char {
  uint32_t value;
  size_t next;
};
inline Char char_at(std::string_view valid_utf8, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(valid_utf8[i])); };
  const uint32_t first = byte(at);
  if (first < 0x80) return {first, at + 1};
  if (first < 0xE0) return {(first & 0x1F) << 6 | (byte(at + 1) & 0x3F), at + 2};
  if (first < 0xF0) return {(first & 0x0F) << 12 | (byte(at + 1) & 0x3F) << 6 | (byte(at + 2) & 0x3F), at + 3};
  return {(first & 0x07) << 18 | (byte(at + 1) & 0x3F) << 12 | (byte(at + 2) & 0x3F) << 6 | (byte(at + 3) & 0x3F), at + 4};
}

// Start of the character that ends at `end` (> 0).
inline size_t char_before(std::string_view valid_utf8, size_t end) {
  size_t at = end - 1;
  while (at > 0 && (static_cast<unsigned char>(valid_utf8[at]) & 0xC0) == 0x80) --at;
  return at;
}

}  // namespace lockstep
