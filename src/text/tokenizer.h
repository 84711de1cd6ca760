// Text to token ids and back, exactly as Hugging Face `tokenizers` does it for the model's files: byte-level and
// SentencePiece-style BPE. A component or pattern that isn't supported is an Error at construction that names it. Not for
// chat templates; for text while it is generated see detokenizer.h.
//   Tokenizer t = Tokenizer::from_json(tokenizer_json, tokenizer_config_json);   t.decode(t.encode("hi", true), true);
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/text_piece.h"
#include "text/vocab.h"

namespace lockstep {

struct TokenizerParts;  // tokenizer_parts.h

// A value: copies share what they hold, which never changes, so that any number of threads may use one.
class Tokenizer {
 public:
  // The contents of the files; `tokenizer_config_json` may be empty. Both throw Error (unreadable) that names the component.
  static Tokenizer from_json(std::string_view tokenizer_json, std::string_view tokenizer_config_json);
  static Tokenizer from_gguf(const GgufVocab& vocab);

  // Special tokens in the text become their ids. With `add_special_tokens` the ids that the model's files ask for stand
  // around the text's own; a text that begins with that BOS token gets no second one. Bytes that are no UTF-8 count as
  // U+FFFD. Throws Error (unreadable) only where a pattern that is none of the common ones goes over its step budget.
  std::vector<TokenId> encode(std::string_view text, bool add_special_tokens) const;

  // The pieces of one prompt: as if joined, except that a special token is recognised only where all of its text is
  // trusted (or with `parse_untrusted`). Added tokens that aren't special are ordinary vocabulary and found everywhere.
  std::vector<TokenId> encode(std::span<const TextPiece> pieces, bool add_special_tokens, bool parse_untrusted) const;

  // Without any clean-up of spaces. Ids outside the vocabulary add nothing; bytes that are no UTF-8 become U+FFFD.
  std::string decode(std::span<const TokenId> ids, bool skip_special_tokens) const;

  std::string token_bytes(TokenId id) const;  // of one token, parts of characters as they are; "" if unknown

  int32_t n_tokens() const;  // highest id + 1
  bool is_special(TokenId id) const;
  std::optional<TokenId> bos() const, eos() const;            // from tokenizer_config.json or the GGUF metadata
  std::string bos_text() const, eos_text() const;             // "" if none
  std::optional<TokenId> find(std::string_view token) const;  // by the text of the token as the file writes it

  explicit Tokenizer(std::shared_ptr<const TokenizerParts> parts) : parts_(std::move(parts)) {}
  const std::shared_ptr<const TokenizerParts>& parts() const { return parts_; }

 private:
  std::shared_ptr<const TokenizerParts> parts_;
};

}  // namespace lockstep
