// tokenizer.json (with tokenizer_config.json) -> Tokenizer.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/error.h"
#include "text/tokenizer.h"
#include "text/tokenizer_parts.h"

namespace lockstep {
namespace {

using nlohmann::json;

[[noreturn]] void unsupported(std::string_view what) {
  fail(ExitCode::unreadable, "tokenizer.json: ", what, " isn't supported");
}

constexpr int kMaxJsonDepth = 64;         // copies and prints of a value are recursive
constexpr int64_t kMaxIdsPerToken = 16;   // of a vocabulary with holes: memory goes with the ids
constexpr size_t kMaxTokensAround = 256;  // a text

// A value for a message.
std::string shown(const json& value) {
  const std::string text = value.dump(-1, ' ', true);
  return text.size() <= 200 ? text : text.substr(0, 200) + " ...";
}

void check_depth(std::string_view text, const char* name) {
  int depth = 0;
  bool in_string = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string) {
      if (c == '\\') ++at;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth) fail(ExitCode::unreadable, name, ": nested deeper than ", kMaxJsonDepth, " at byte ", at);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
}

json parse_json(std::string_view text, const char* name) {
  check_depth(text, name);
  try {
    return json::parse(text);
  } catch (const json::exception& error) {
    fail(ExitCode::unreadable, name, ": ", error.what());
  }
}

// A member that may be missing or null.
const json& member(const json& object, const char* name) {
  static const json null;
  const auto found = object.find(name);
  return found == object.end() ? null : *found;
}

bool flag(const json& object, const char* name) {
  const json& value = member(object, name);
  return !value.is_null() && value.get<bool>();
}

TokenId id_of(const json& value, std::string_view token) {
  if (!value.is_number_integer() || value.get<int64_t>() < 0 || value.get<int64_t>() >= kTokenIdLimit)
    fail(ExitCode::unreadable, "tokenizer.json: token '", token, "' has the id ", shown(value));
  return value.get<TokenId>();
}

void check_model(const json& model) {
  const json& type = member(model, "type");
  if (!type.is_null() && type != "BPE") unsupported(concat("model ", shown(type)));
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (const json& value = member(model, affix); !value.is_null() && value != "")
      unsupported(concat("model.", affix, " ", shown(value)));
  if (const json& dropout = member(model, "dropout"); !dropout.is_null() && dropout != 0)
    unsupported(concat("model.dropout ", shown(dropout), ", which makes ids random,"));
  if (!member(model, "vocab").is_object() || !member(model, "merges").is_array())
    fail(ExitCode::unreadable, "tokenizer.json: model.vocab or model.merges is missing");
}

// Ids of added tokens follow the library that wrote the file: a token of the vocabulary has its id there, each other one the
// next after the vocabulary. The id in the file agrees unless somebody edited it.
std::vector<AddedToken> parse_added(const json& list, const json& vocab, StringTable& tokens) {
  std::vector<AddedToken> added;
  std::unordered_map<std::string, size_t> index_of;
  int64_t next = static_cast<int64_t>(vocab.size());
  for (const json& entry : list) {
    AddedToken token{.content = entry.at("content"),
                     .special = flag(entry, "special"),
                     .single_word = flag(entry, "single_word"),
                     .lstrip = flag(entry, "lstrip"),
                     .rstrip = flag(entry, "rstrip"),
                     .normalized = flag(entry, "normalized")};
    if (token.content.empty()) continue;
    const auto [known, is_new] = index_of.try_emplace(token.content, added.size());
    if (!is_new) {  // the flags of the last count
      token.id = added[known->second].id;
      token.special |= added[known->second].special;
      added[known->second] = std::move(token);
      continue;
    }
    const auto in_vocab = vocab.find(token.content);
    token.id = id_of(in_vocab != vocab.end() ? *in_vocab : json(next++), token.content);
    if (in_vocab == vocab.end() && tokens.has(token.id))
      fail(ExitCode::unreadable, "tokenizer.json: added token '", token.content, "' falls on id ", token.id, ", which is '",
           tokens.text(token.id), "'");
    tokens.add(token.id, token.content);
    added.push_back(std::move(token));
  }
  return added;
}

std::vector<BpeMerge> parse_merges(const json& merges, const StringTable& tokens) {
  std::vector<BpeMerge> out;
  out.reserve(merges.size());
  std::string joined;
  const auto find = [&](std::string_view token) {
    const TokenId id = tokens.find(token);
    if (id == kNoToken)
      fail(ExitCode::unreadable, "tokenizer.json: merge ", out.size(), ": '", token, "' is not in the vocabulary");
    return id;
  };
  for (const json& merge : merges) {
    std::string_view left, right;
    if (merge.is_string()) {
      const std::string_view line = merge.get_ref<const std::string&>();
      if (line.starts_with("#version")) continue;
      const size_t space = line.find(' ');
      if (space != std::string_view::npos) left = line.substr(0, space), right = line.substr(space + 1);
      if (right.find(' ') != std::string_view::npos) right = {};
    } else if (merge.is_array() && merge.size() == 2) {
      left = merge[0].get_ref<const std::string&>(), right = merge[1].get_ref<const std::string&>();
    }
    if (left.empty() || right.empty())
      fail(ExitCode::unreadable, "tokenizer.json: merge ", out.size(), " isn't a pair: ", shown(merge));
    joined.assign(left).append(right);
    out.push_back({find(left), find(right), find(joined), static_cast<int32_t>(out.size())});
  }
  return out;
}

std::vector<TokenId> template_ids(const json& processor, const json& name) {
  std::vector<TokenId> ids;
  const std::string token = name;
  for (const json& id : processor.at("special_tokens").at(token).at("ids"))
    if (ids.size() <= kMaxTokensAround) ids.push_back(id_of(id, token));
  return ids;
}

void check_around(const std::vector<TokenId>& before, const std::vector<TokenId>& after) {
  if (before.size() + after.size() > kMaxTokensAround)
    fail(ExitCode::unreadable, "tokenizer.json: post_processor adds more than ", kMaxTokensAround, " tokens");
}

// What a post_processor puts around a single sequence; the later of a Sequence goes around the earlier.
void parse_post_processor(const json& processor, int depth, TokenizerParts& parts) {
  if (processor.is_null()) return;
  const std::string type = processor.value("type", "");
  if (type == "ByteLevel") return;  // offsets only
  if (type == "Sequence" && depth < 8) {
    for (const json& inner : processor.at("processors")) parse_post_processor(inner, depth + 1, parts);
    return;
  }
  std::vector<TokenId> before, after;
  if (type == "TemplateProcessing") {
    int n_sequences = 0;
    for (const json& piece : processor.at("single")) {
      if (piece.contains("Sequence")) {
        ++n_sequences;
        continue;
      }
      const auto ids = template_ids(processor, piece.at("SpecialToken").at("id"));
      auto& side = n_sequences == 0 ? before : after;
      side.insert(side.end(), ids.begin(), ids.end());
      check_around(before, after);
    }
    if (n_sequences != 1) unsupported("a post_processor template without the text, or with it twice,");
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    before.push_back(id_of(processor.at("cls").at(1), "cls"));
    after.push_back(id_of(processor.at("sep").at(1), "sep"));
  } else {
    unsupported(concat("post_processor '", type, "'"));
  }
  for (const auto& side : {before, after})
    for (const TokenId id : side)
      if (!parts.tokens.has(id))
        fail(ExitCode::unreadable, "tokenizer.json: post_processor adds token ", id, ", which does not exist");
  parts.prefix.insert(parts.prefix.begin(), before.begin(), before.end());
  parts.suffix.insert(parts.suffix.end(), after.begin(), after.end());
  check_around(parts.prefix, parts.suffix);
}

// A token of tokenizer_config.json: its text, or an object with it.
std::optional<TokenId> config_token(const json& config, const char* name, const StringTable& tokens) {
  const json& value = member(config, name);
  const json& content = value.is_object() ? member(value, "content") : value;
  if (!content.is_string()) return std::nullopt;
  const TokenId id = tokens.find(content.get_ref<const std::string&>());
  return id == kNoToken ? std::nullopt : std::optional(id);
}

std::optional<bool> config_flag(const json& config, const char* name) {
  const json& value = member(config, name);
  return value.is_boolean() ? std::optional(value.get<bool>()) : std::nullopt;
}

void parse_config(std::string_view text, TokenizerParts& parts) {
  if (text.empty()) return;
  const json config = parse_json(text, "tokenizer_config.json");
  if (!config.is_object()) fail(ExitCode::unreadable, "tokenizer_config.json: not an object");
  parts.bos = config_token(config, "bos_token", parts.tokens);
  parts.eos = config_token(config, "eos_token", parts.tokens);
  set_bos_eos(parts, config_flag(config, "add_bos_token"), config_flag(config, "add_eos_token"));
}

std::shared_ptr<TokenizerParts> parse_tokenizer(const json& file) {
  auto parts = std::make_shared<TokenizerParts>();
  if (!file.is_object() || !member(file, "model").is_object()) fail(ExitCode::unreadable, "tokenizer.json: no model");
  const json& model = file["model"];
  check_model(model);
  const json& vocab = model["vocab"];
  ModelTokens parsed;
  const int64_t id_limit = 1024 + kMaxIdsPerToken * static_cast<int64_t>(vocab.size());
  for (const auto& [token, value] : vocab.items()) {
    const TokenId id = id_of(value, token);
    if (id >= id_limit)
      fail(ExitCode::unreadable, "tokenizer.json: token '", token, "' has the id ", id, " in a vocabulary of ", vocab.size(),
           " tokens");
    if (parts->tokens.has(id))
      fail(ExitCode::unreadable, "tokenizer.json: '", token, "' and '", parts->tokens.text(id), "' have one id, ", id);
    parts->tokens.add(id, token);
  }
  std::vector<AddedToken> added = parse_added(member(file, "added_tokens"), vocab, parts->tokens);
  parts->tokens.build_index();
  parsed.in_model.assign(parts->tokens.n_ids(), false);
  for (const auto& [token, id] : vocab.items()) parsed.in_model[id.get<TokenId>()] = true;

  parts->normalizer = parse_normalizer(member(file, "normalizer"));
  parts->added = AddedTokens(std::move(added), parts->normalizer);
  parts->pretokenizer = parse_pretokenizer(member(file, "pre_tokenizer"));
  parse_post_processor(member(file, "post_processor"), 0, *parts);
  parsed.merges = parse_merges(model["merges"], parts->tokens);
  parsed.bpe.ignore_merges = flag(model, "ignore_merges");
  parsed.bpe.byte_fallback = flag(model, "byte_fallback");
  parsed.bpe.fuse_unk = flag(model, "fuse_unk");
  if (const json& unk = member(model, "unk_token"); unk.is_string())
    parsed.bpe.unk = parts->tokens.find(unk.get<std::string>());
  parsed.decoder = parse_decoder(member(file, "decoder"));
  finish_parts(*parts, std::move(parsed));
  return parts;
}

}  // namespace

Tokenizer Tokenizer::from_json(std::string_view tokenizer_json, std::string_view tokenizer_config_json) {
  const json file = parse_json(tokenizer_json, "tokenizer.json");
  try {
    auto parts = parse_tokenizer(file);
    parse_config(tokenizer_config_json, *parts);
    return Tokenizer(std::move(parts));
  } catch (const json::exception& error) {  // a member of another type than the format has
    fail(ExitCode::unreadable, "tokenizer.json or tokenizer_config.json: ", error.what());
  }
}

}  // namespace lockstep
