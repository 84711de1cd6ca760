// Any bytes as a text, cut at bytes 1E into pieces of changing trust, for one small tokenizer of each kind.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "text/tokenizer_tiny.h"
#include "tokenizer_checks.h"

namespace {

using namespace lockstep;
using nlohmann::json;

const std::vector<std::string> kMerges = {"h e", "l l", "he ll", "hell o", "_ w", "_w o", "_ _", "_ 1", "1 2", "\n \n", "o o"};

Tokenizer byte_level() { return make(tiny_tokenizer(kMerges)); }

// Llama 3's pattern, merges ignored for whole words, special and plain added tokens.
Tokenizer with_added() {
  json file = tiny_tokenizer(kMerges);
  const json split = {
      {"type", "Split"},
      {"pattern",
       {{"Regex",
         "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
         "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}}},
      {"behavior", "Isolated"}};
  const json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split, bytes}}};
  file["model"]["ignore_merges"] = true;
  for (const char* token : {"<s>", "</s>", "<|user|>", "<|x"}) add_token(file, token);
  add_token(file, "<think>", {.special = false});
  add_token(file, "\u00E9\u4F60", {.special = false});
  return make(file, R"({"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": true})");
}

// A normal form, tokens that take white space or are looked for after it, and a pattern of no known tokenizer.
Tokenizer with_pattern() {
  json file = tiny_tokenizer(kMerges);
  const json split = {{"type", "Split"},
                      {"pattern", {{"Regex", "(?:\\p{L}\\p{M}*)+?(?=\\d|$)|\\b\\w{2,5}\\b|(?>x*)y|[^\\s&&[^a-f]]+"}}},
                      {"behavior", "MergedWithNext"}};
  const json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", true}};
  file["normalizer"] = {{"type", "NFKC"}};
  file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split, bytes}}};
  add_token(file, "<mask>", {.lstrip = true});
  add_token(file, "<r>", {.rstrip = true});
  add_token(file, "fi", {.single_word = true});
  add_token(file, "\u00E9", {.special = false, .normalized = true});
  add_token(file, " w", {.special = false});
  return make(file);
}

json sentencepiece_file(bool byte_fallback) {
  json vocab = json::object(), merges = json::array();
  const auto add = [&](const std::string& token) { vocab[token] = vocab.size(); };
  for (const char* token : {"<unk>", "<s>", "</s>"}) add(token);
  constexpr char kHex[] = "0123456789ABCDEF";
  for (int byte = 0; byte < 256 && byte_fallback; ++byte) add(std::string("<0x") + kHex[byte >> 4] + kHex[byte & 15] + ">");
  for (const char* token : {"\u2581", "h", "e", "l", "o", "w", "1", "<", "\u00E9", "\u4F60"}) add(token);
  for (const auto& [left, right] : {std::pair<std::string, std::string>{"h", "e"},
                                    {"l", "l"},
                                    {"he", "ll"},
                                    {"\u2581", "\u2581"},
                                    {"\u2581", "he"},
                                    {"\u2581\u2581", "w"},
                                    {"o", "\u2581"}}) {
    add(left + right);
    merges.push_back({left, right});
  }
  json file = {{"added_tokens", json::array()},
               {"model", {{"type", "BPE"}, {"unk_token", "<unk>"}, {"fuse_unk", true}, {"byte_fallback", byte_fallback}}}};
  file["model"]["vocab"] = vocab;
  file["model"]["merges"] = merges;
  return file;
}

Tokenizer sentencepiece() {
  json file = sentencepiece_file(true);
  file["normalizer"] = {{"type", "Sequence"},
                        {"normalizers",
                         {{{"type", "Prepend"}, {"prepend", "\u2581"}},
                          {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}}}}};
  file["decoder"] = {{"type", "Sequence"},
                     {"decoders",
                      {{{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}},
                       {{"type", "ByteFallback"}},
                       {{"type", "Fuse"}},
                       {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}};
  return make(file);
}

Tokenizer metaspace() {
  json file = sentencepiece_file(false);
  const json step = {{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "first"}, {"split", true}};
  file["pre_tokenizer"] = step;
  file["decoder"] = step;
  add_token(file, "<s>", {.rstrip = true});
  return make(file);
}

Tokenizer gguf() {
  GgufVocab vocab{.model = "llama"};
  const json file = sentencepiece_file(true);
  vocab.tokens.resize(file["model"]["vocab"].size());
  for (const auto& [token, id] : file["model"]["vocab"].items()) vocab.tokens[id.get<size_t>()] = token;
  for (size_t id = 0; id < vocab.tokens.size(); ++id) {
    const bool byte = id >= 3 && id < 259;
    vocab.token_types.push_back(id == 0 ? 2 : id < 3 ? 3 : byte ? 6 : 1);
    vocab.scores.push_back(-static_cast<float>(id));
  }
  return Tokenizer::from_gguf(vocab);
}

std::vector<TextPiece> pieces_of(std::string_view text) {
  std::vector<TextPiece> pieces;
  for (bool trusted = true;; trusted = !trusted) {
    const size_t end = std::min(text.find('\x1E'), text.size());
    pieces.push_back({std::string(text.substr(0, end)), trusted});
    if (end == text.size()) return pieces;
    text.remove_prefix(end + 1);
  }
}

void check_pieces(const Tokenizer& tokenizer, std::vector<TextPiece> pieces, bool never_special) {
  check_ids(tokenizer, tokenizer.encode(pieces, true, false));
  if (!never_special) return;
  for (TextPiece& piece : pieces) piece.trusted = false;
  for (const TokenId id : tokenizer.encode(pieces, false, false)) require(!tokenizer.is_special(id));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Tokenizer kByteLevel = byte_level(), kWithAdded = with_added(), kWithPattern = with_pattern(),
                         kSentencePiece = sentencepiece(), kMetaspace = metaspace(), kGguf = gguf();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string valid = lossy_utf8(text);
  const std::vector<TextPiece> pieces = pieces_of(text);

  require(check_text(kByteLevel, text, true) == valid);
  require(check_text(kWithAdded, text, true) == valid);
  check_text(kWithPattern, text, true);
  check_text(kMetaspace, text, true);
  if (valid.find("\u2581") == std::string::npos) {  // it stands for a space there
    require(check_text(kSentencePiece, text, true) == valid);
    if (valid.find('<') == std::string::npos) require(check_text(kGguf, text, true) == valid);
  }
  check_pieces(kByteLevel, pieces, true);
  check_pieces(kWithAdded, pieces, true);
  check_pieces(kWithPattern, pieces, false);
  check_pieces(kSentencePiece, pieces, true);
  check_pieces(kMetaspace, pieces, false);
  check_pieces(kGguf, pieces, false);

  // Any bytes as ids.
  std::vector<TokenId> ids;
  for (const uint8_t byte : std::span(data, size)) ids.push_back(byte);
  check_ids(kByteLevel, ids, true);
  for (const Tokenizer* tokenizer : {&kWithAdded, &kSentencePiece, &kMetaspace, &kGguf}) check_ids(*tokenizer, ids);
  return 0;
}
