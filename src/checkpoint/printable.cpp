#include "checkpoint/printable.h"

#include "base/error.h"
#include "base/utf8.h"

namespace lockstep {

std::string printable(std::string_view text) {
  constexpr size_t kMaxBytes = 120;
  std::string out;
  size_t at = 0;
  while (at < text.size() && at < kMaxBytes) {
    const CodePoint c = decode_utf8(text, at);
    const bool control = c.value < 0x20 || (c.value >= 0x7F && c.value < 0xA0);
    append_utf8(out, control ? kReplacement : c.value);
    at += c.length;
  }
  return at < text.size() ? out + "..." : out;
}

std::string in_quotes(std::string_view text) { return concat('\'', printable(text), '\''); }

}  // namespace lockstep
