// Tokens to text: the chain of decoders of a tokenizer file, folded into a piece of bytes for each token and a few rules.
// One state serves a whole decode and a streamed one (detokenizer.h).
//   DecodeState s; std::string out; for (id : ids) decoder.append(id, s, out); decoder.finish(s, out);
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "text/string_table.h"

namespace lockstep {

struct DecoderOptions {
  enum class Kind {
    byte_level,  // pieces are bytes; text is made of all of them together
    pieces,      // pieces are text
    joined,      // no decoder: pieces with spaces between them
  };
  Kind kind = Kind::joined;
  std::vector<std::pair<std::string, std::string>> replacements;  // pieces: in each token's text, in this order
  bool byte_fallback = false;                                     // pieces: <0xNN> is a byte
  std::string strip;  // pieces: this character, up to n_strip times, is dropped at the start of the text
  uint32_t n_strip = 0;
  std::string metaspace;               // pieces: becomes ' '
  bool drops_first_metaspace = false;  // and vanishes from the first token
};

struct DecodeState {
  std::string run;       // bytes of byte_fallback tokens that are not text yet
  bool started = false;  // a token was seen
  uint32_t n_stripped = 0;
  bool text_started = false;  // nothing will be stripped any more
};

class Decoder {
 public:
  Decoder() = default;
  Decoder(const StringTable& tokens, DecoderOptions options);

  const DecoderOptions& options() const { return options_; }
  std::string_view piece(TokenId id) const { return pieces_.text(id); }
  bool knows(TokenId id) const { return pieces_.has(id); }
  bool is_byte(TokenId id) const { return knows(id) && bytes_[id] >= 0; }
  char byte(TokenId id) const { return static_cast<char>(bytes_[id]); }

  // Appends what `id` adds for sure; unknown ids add nothing. Byte level: bytes, which only together are UTF-8.
  void append(TokenId id, DecodeState& state, std::string& out) const;
  // A run of byte tokens ends: it is text, or each byte is one U+FFFD.
  void finish(DecodeState& state, std::string& out) const;
  void append_text(std::string_view text, DecodeState& state, std::string& out) const;

 private:
  DecoderOptions options_;
  StringTable pieces_;
  std::vector<int16_t> bytes_;       // [n_ids] the byte of a byte token, else -1
  std::vector<std::string> firsts_;  // [n_ids] drops_first_metaspace: the piece of a first token
};

}  // namespace lockstep
