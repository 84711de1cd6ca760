// What a tokenizer is made of, in the order a text passes it. Filled by tokenizer_json.cpp and tokenizer_gguf.cpp, used by
// tokenizer.cpp and detokenizer.cpp; not for other code.
//   auto parts = std::make_shared<TokenizerParts>(); parts->added = ..;   Tokenizer t(parts);
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/decoder.h"
#include "text/normalizer.h"
#include "text/pretokenize.h"
#include "text/string_table.h"

namespace lockstep {

struct TokenizerParts {
  AddedTokens added;
  Normalizer normalizer;
  Pretokenizer pretokenizer;
  Bpe bpe;
  std::vector<TokenId> prefix, suffix;  // around a text, where special tokens are added
  Decoder decoder;
  StringTable tokens;         // as the file writes them, added ones included
  std::vector<bool> special;  // [n_ids]
  std::optional<TokenId> bos, eos;

  bool is_special(TokenId id) const { return id >= 0 && id < static_cast<TokenId>(special.size()) && special[id]; }
};

// With `tokens` (all of them, indexed), `added` and `pretokenizer` in place, fills in what follows: special, bpe, decoder.
struct ModelTokens {
  std::vector<bool> in_model;  // [n_ids] of the vocabulary; the others are only added
  std::vector<BpeMerge> merges;
  BpeOptions bpe;
  DecoderOptions decoder;
};
void finish_parts(TokenizerParts& parts, ModelTokens model);

// add_bos, add_eos as settings name them: true adds the token if it isn't there, false takes it away.
void set_bos_eos(TokenizerParts& parts, std::optional<bool> add_bos, std::optional<bool> add_eos);

// Of tokenizer_json_steps.cpp: the parts of tokenizer.json that are chains of steps; each may be null.
Normalizer parse_normalizer(const nlohmann::json& json);
Pretokenizer parse_pretokenizer(const nlohmann::json& json);
DecoderOptions parse_decoder(const nlohmann::json& json);

// Pattern step: the straight code where there is one.
PretokenizeStep pattern_step(std::string_view regex);

}  // namespace lockstep
