// Streaming decode of one completion: text as soon as it is certain. What push() and finish() return, joined, is what
// decode() gives for all ids (byte-level tokenizers: always; SentencePiece ones: unless byte tokens are no UTF-8). A text
// that ends in U+FFFD is held back, since the next token may complete it; finish() hands it out.
//   Detokenizer d(tokenizer, true); for (TokenId id : ids) text += d.push(id); text += d.finish();
#pragma once

#include <memory>
#include <string>

#include "text/decoder.h"
#include "text/tokenizer.h"

namespace lockstep {

class Detokenizer {
 public:
  Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens);

  std::string push(TokenId id);  // what can be shown now; O(1) amortised
  std::string finish();          // the rest; the next push() begins a new text

 private:
  std::string push_byte(char byte);

  std::shared_ptr<const TokenizerParts> parts_;
  bool skip_special_tokens_;
  DecodeState state_;
  std::string held_;         // decoded, not shown
  size_t run_valid_ = 0;     // bytes of state_.run that are whole characters
  bool run_broken_ = false;  // the run is no UTF-8, whatever follows
};

}  // namespace lockstep
