// The one-to-one map between bytes and printable characters that byte-level vocabularies are written in (GPT-2: the byte
// 0x20 is written U+0120, a letter stays itself). Vocabularies are kept as bytes inside; this is for their files.
//   std::optional<std::string> bytes = bytes_of_level_text("\u0120the");   // " the"
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

const std::array<uint16_t, 256>& level_chars();  // byte -> code point, below 0x144

std::string level_text_of_bytes(std::string_view bytes);

// None where a character stands for no byte.
std::optional<std::string> bytes_of_level_text(std::string_view text);

}  // namespace lockstep
