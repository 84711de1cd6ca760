// What holds for any tokenizer and any text; abort() where it doesn't. For fuzz targets only.
//   check_text(tokenizer, "any bytes"); check_ids(tokenizer, ids);
#pragma once

#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace lockstep {

inline void require(bool ok) {
  if (!ok) std::abort();
}

inline bool is_utf8(std::string_view text) { return find_invalid_utf8(text) == std::string_view::npos; }

// Any ids: the text is UTF-8, and streaming it gives the same. `whole`: also where characters had to be replaced.
inline std::string check_ids(const Tokenizer& tokenizer, std::span<const TokenId> ids, bool whole = false) {
  std::string text;
  for (const bool skip_special : {true, false}) {
    text = tokenizer.decode(ids, skip_special);
    require(is_utf8(text));
    Detokenizer stream(tokenizer, skip_special);
    std::string streamed;
    for (const TokenId id : ids) {
      const std::string part = stream.push(id);
      require(is_utf8(part));
      streamed += part;
    }
    streamed += stream.finish();
    if (whole || text.find("\uFFFD") == std::string::npos) require(streamed == text);
  }
  return text;
}

// Encodes in every way; the text that the ids make, without the special tokens that are put around.
inline std::string check_text(const Tokenizer& tokenizer, std::string_view text, bool whole = false) {
  const std::vector<TokenId> ids = tokenizer.encode(text, false);
  for (const TokenId id : ids) require(id >= 0 && id < tokenizer.n_tokens());
  require(tokenizer.encode(text, true).size() + 1 >= ids.size());

  const std::string valid = lossy_utf8(text);
  size_t half = valid.size() / 2;
  while (half > 0 && half < valid.size() && (static_cast<unsigned char>(valid[half]) & 0xC0) == 0x80) --half;
  std::vector<TextPiece> pieces{{valid.substr(0, half), true}, {valid.substr(half), true}};
  require(tokenizer.encode(pieces, false, false) == ids);
  pieces[1].trusted = false;
  require(tokenizer.encode(pieces, false, true) == ids);
  tokenizer.encode(pieces, false, false);
  return check_ids(tokenizer, ids, whole);
}

}  // namespace lockstep
