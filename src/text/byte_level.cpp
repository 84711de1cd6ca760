#include "text/byte_level.h"

#include "base/utf8.h"

namespace lockstep {
namespace {

constexpr uint32_t kEnd = 0x144;  // 188 printable characters of Latin-1 stand for themselves, 68 others follow at U+0100

std::array<uint16_t, 256> make_level_chars() {
  std::array<uint16_t, 256> chars{};
  uint16_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    chars[byte] = printable ? static_cast<uint16_t>(byte) : next++;
  }
  return chars;
}

std::array<int16_t, kEnd> make_char_bytes() {
  std::array<int16_t, kEnd> bytes;
  bytes.fill(-1);
  for (unsigned byte = 0; byte < 256; ++byte) bytes[level_chars()[byte]] = static_cast<int16_t>(byte);
  return bytes;
}

}  // namespace

const std::array<uint16_t, 256>& level_chars() {
  static const std::array<uint16_t, 256> chars = make_level_chars();
  return chars;
}

std::string level_text_of_bytes(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() + bytes.size() / 2);
  for (const char byte : bytes) append_utf8(text, level_chars()[static_cast<unsigned char>(byte)]);
  return text;
}

std::optional<std::string> bytes_of_level_text(std::string_view text) {
  static const std::array<int16_t, kEnd> bytes_of = make_char_bytes();
  std::string bytes;
  bytes.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = decode_utf8(text, at);
    if (!c.valid || c.value >= kEnd || bytes_of[c.value] < 0) return std::nullopt;
    bytes += static_cast<char>(bytes_of[c.value]);
    at += c.length;
  }
  return bytes;
}

}  // namespace lockstep
