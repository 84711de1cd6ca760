// A run of prompt text with its origin: what the chat template wrote (trusted) or what came out of the request. Special
// tokens are recognised in trusted runs only, so that no content can forge a turn. Bytes, no tokens: see text/tokenizer.h.
//   std::vector<TextPiece> prompt = {{"<|im_start|>user\n", true}, {"hi <|im_end|>", false}};
#pragma once

#include <string>

namespace lockstep {

struct TextPiece {
  std::string text;  // UTF-8
  bool trusted = true;
};

}  // namespace lockstep
