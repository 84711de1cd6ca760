// The golden tokenizers outside the project: their files and what Hugging Face makes of the corpus. For tests only.
//   if (auto file = golden_tokenizer("smollm2")) Tokenizer::from_json(*file, "");
#pragma once

#include <array>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "base/ids.h"
#include "text/vocab.h"

namespace lockstep {

inline std::string golden_folder() { return std::string(LOCKSTEP_SHARED) + "/goldens/"; }

inline std::optional<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

inline std::optional<std::string> golden_tokenizer(const std::string& name) {
  const std::string path = golden_folder() + "tokenizers/" + name + ".json.xz";
  if (!std::ifstream(path)) return std::nullopt;
  const auto close = [](FILE* pipe) { pclose(pipe); };
  const std::unique_ptr<FILE, decltype(close)> pipe(popen(("xz -dc '" + path + "'").c_str(), "r"), close);
  std::string text;
  std::array<char, 65536> block;
  while (const size_t n = std::fread(block.data(), 1, block.size(), pipe.get())) text.append(block.data(), n);
  if (text.empty()) return std::nullopt;
  return text;
}

inline std::optional<nlohmann::json> golden_json(const std::string& path) {
  const auto text = read_file(golden_folder() + path);
  if (!text) return std::nullopt;
  return nlohmann::json::parse(*text);
}

// A list of ids, or {"rle": [[id, count]..]}.
inline std::vector<TokenId> golden_ids(const nlohmann::json& value) {
  if (value.is_array()) return value.get<std::vector<TokenId>>();
  std::vector<TokenId> ids;
  for (const auto& run : value.at("rle")) ids.insert(ids.end(), run[1].get<size_t>(), run[0].get<TokenId>());
  return ids;
}

// What a GGUF file of a byte-level tokenizer.json holds.
inline GgufVocab gguf_vocab_of(const nlohmann::json& file, const std::string& pre) {
  GgufVocab vocab;
  vocab.model = "gpt2";
  vocab.pre = pre;
  const auto put = [&](const std::string& token, size_t id, int32_t type) {
    if (id >= vocab.tokens.size()) vocab.tokens.resize(id + 1), vocab.token_types.resize(id + 1, 1);
    vocab.tokens[id] = token;
    vocab.token_types[id] = type;
  };
  for (const auto& [token, id] : file.at("model").at("vocab").items()) put(token, id, 1);
  for (const auto& added : file.at("added_tokens")) put(added.at("content"), added.at("id"), added.at("special") ? 3 : 4);
  for (const auto& merge : file.at("model").at("merges"))
    vocab.merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  return vocab;
}

// A dump of tests/data/text/dump_gguf_vocab.py.
inline GgufVocab vocab_of_dump(const nlohmann::json& dump) {
  GgufVocab vocab;
  const auto get = [&](const char* name, auto& value) {
    if (dump.contains(name)) value = dump[name].get<std::decay_t<decltype(value)>>();
  };
  const auto get_optional = [&]<class T>(const char* name, std::optional<T>& value) {
    if (dump.contains(name)) value = dump[name].get<T>();
  };
  get("model", vocab.model), get("pre", vocab.pre), get("tokens", vocab.tokens), get("scores", vocab.scores);
  get("token_types", vocab.token_types), get("merges", vocab.merges);
  get_optional("bos_id", vocab.bos_id), get_optional("eos_id", vocab.eos_id), get_optional("unk_id", vocab.unk_id);
  get_optional("pad_id", vocab.pad_id), get_optional("add_bos", vocab.add_bos), get_optional("add_eos", vocab.add_eos);
  get_optional("add_space_prefix", vocab.add_space_prefix);
  return vocab;
}

}  // namespace lockstep
