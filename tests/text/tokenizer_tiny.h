// A byte-level tokenizer.json small enough to check by eye: ids 0..255 are the bytes, then the merges in order, then the
// added tokens. For tests only.
//   json file = tiny_tokenizer({"h e", "he y"});   256 is "he", 257 is "hey"; added tokens from 258
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "text/byte_level.h"
#include "text/tokenizer.h"

namespace lockstep {

// `merges` in plain characters, a space between the two sides; ' ' inside a side is written '_'.
inline nlohmann::json tiny_tokenizer(const std::vector<std::string>& merges) {
  using nlohmann::json;
  json vocab = json::object(), pairs = json::array();
  for (int byte = 0; byte < 256; ++byte) {
    const char character = static_cast<char>(byte);
    vocab[level_text_of_bytes({&character, 1})] = byte;
  }
  for (std::string merge : merges) {
    const size_t space = merge.find(' ');
    std::replace(merge.begin(), merge.end(), '_', ' ');
    const std::string left = level_text_of_bytes(merge.substr(0, space)), right = level_text_of_bytes(merge.substr(space + 1));
    const int id = static_cast<int>(vocab.size());
    pairs.push_back({left, right});
    if (!vocab.contains(left + right)) vocab[left + right] = id;
  }
  const json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  return {{"version", "1.0"},
          {"added_tokens", json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", bytes},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", pairs}}}};
}

struct Flags {
  bool special = true, single_word = false, lstrip = false, rstrip = false, normalized = false;
};

inline void add_token(nlohmann::json& file, const std::string& content, Flags flags = {}) {
  file["added_tokens"].push_back({{"id", file["model"]["vocab"].size() + file["added_tokens"].size()},
                                  {"content", content},
                                  {"special", flags.special},
                                  {"single_word", flags.single_word},
                                  {"lstrip", flags.lstrip},
                                  {"rstrip", flags.rstrip},
                                  {"normalized", flags.normalized}});
}

inline Tokenizer make(const nlohmann::json& file, std::string_view config = "") {
  return Tokenizer::from_json(file.dump(), config);
}

using Ids = std::vector<TokenId>;

}  // namespace lockstep
