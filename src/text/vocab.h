// What a GGUF file says of its tokenizer, copied from the file's metadata: plain data, so that reading files and
// tokenizing need not know each other.
//   GgufVocab v; v.model = "gpt2"; v.pre = "smollm"; v.tokens = ..;   Tokenizer t = Tokenizer::from_gguf(v);
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

struct GgufVocab {
  std::string model;                 // tokenizer.ggml.model: gpt2 (byte-level BPE) or llama (SentencePiece)
  std::string pre;                   // tokenizer.ggml.pre: names the pre-tokenizer of a gpt2 model
  std::vector<std::string> tokens;   // [n_tokens]
  std::vector<float> scores;         // [n_tokens] or empty; llama: higher merges first
  std::vector<int32_t> token_types;  // [n_tokens] or empty; 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte
  std::vector<std::string> merges;   // "left right", by rank; gpt2
  std::optional<int64_t> bos_id, eos_id, unk_id, pad_id;
  std::optional<bool> add_bos, add_eos, add_space_prefix;
};

}  // namespace lockstep
