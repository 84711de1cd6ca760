#include "base/utf8.h"

namespace lockstep {

CodePoint decode_utf8(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  if (first < 0x80) return {first, 1, true};
  int n_more;
  uint32_t value;
  unsigned char low = 0x80, high = 0xBF;  // bounds of the second byte
  if (first >= 0xC2 && first <= 0xDF) {
    n_more = 1, value = first & 0x1F;
  } else if (first >= 0xE0 && first <= 0xEF) {
    n_more = 2, value = first & 0x0F;
    if (first == 0xE0) low = 0xA0;   // overlong
    if (first == 0xED) high = 0x9F;  // surrogates
  } else if (first >= 0xF0 && first <= 0xF4) {
    n_more = 3, value = first & 0x07;
    if (first == 0xF0) low = 0x90;   // overlong
    if (first == 0xF4) high = 0x8F;  // above U+10FFFF
  } else {
    return {kReplacement, 1, false};
  }
  for (int i = 1; i <= n_more; ++i) {
    if (at + i >= text.size() || byte(at + i) < low || byte(at + i) > high)
      return {kReplacement, static_cast<uint8_t>(i), false};
    value = value << 6 | (byte(at + i) & 0x3F);
    low = 0x80, high = 0xBF;
  }
  return {value, static_cast<uint8_t>(n_more + 1), true};
}

void append_utf8(std::string& out, uint32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

size_t find_invalid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = decode_utf8(text, at);
    if (!c.valid) return at;
    at += c.length;
  }
  return std::string_view::npos;
}

std::string lossy_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (size_t at = 0; at < bytes.size();) {
    const CodePoint c = decode_utf8(bytes, at);
    append_utf8(out, c.value);
    at += c.length;
  }
  return out;
}

size_t count_code_points(std::string_view text) {
  size_t n = 0;
  for (const char c : text) n += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return n;
}

}  // namespace lockstep
