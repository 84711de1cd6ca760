// UTF-8, strictly: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

inline constexpr uint32_t kReplacement = 0xFFFD;

struct CodePoint {
  uint32_t value;  // kReplacement where `valid` is false
  uint8_t length;  // bytes consumed: for an invalid start the longest prefix that could begin a sequence, at least 1
  bool valid;
};

// The code point at `text[at]` (at < text.size()). Invalid input consumes the maximal subpart (Unicode 15 §3.9, as Python
// and Rust's from_utf8_lossy do), so that a lossy decode yields one U+FFFD for each.
CodePoint decode_utf8(std::string_view text, size_t at);

void append_utf8(std::string& out, uint32_t code_point);

// Offset of the first invalid byte, or npos.
size_t find_invalid_utf8(std::string_view text);

// Invalid parts become U+FFFD.
std::string lossy_utf8(std::string_view bytes);

size_t count_code_points(std::string_view valid_utf8);

}  // namespace lockstep
