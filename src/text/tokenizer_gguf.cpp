// The tokenizer in a GGUF file -> Tokenizer, with the steps that the model's tokenizer.json would name.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/utf8.h"
#include "text/tokenizer.h"
#include "text/tokenizer_parts.h"

namespace lockstep {
namespace {

constexpr size_t kMaxPieceBytes = 512;  // of a SentencePiece token; each is tried with every cut in two
constexpr int32_t kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kByte = 6;  // token types

// What tokenizer.ggml.pre stands for, where the original tokenizer.json is known.
struct Pre {
  std::string_view name;
  std::string_view steps;  // of make_pretokenizer
  bool nfc = false;
  bool ignore_merges = false;
  bool add_bos = false;  // where the file does not say
};
constexpr Pre kPres[] = {
    {"gpt-2", "gpt2"},
    {"phi-2", "gpt2"},
    {"mpt", "gpt2", true},
    {"olmo", "gpt2", true},
    {"smollm", "digits gpt2"},
    {"starcoder", "digits gpt2"},
    {"refact", "digits gpt2"},
    {"command-r", "digits gpt2", true},
    {"falcon", "falcon"},
    {"llama-bpe", "llama3", false, true, true},
    {"llama3", "llama3", false, true, true},
    {"llama-v3", "llama3", false, true, true},
    {"qwen2", "qwen2", true},
    {"deepseek-r1-qwen", "qwen2", true},
    {"qwen35", "qwen35", true},
    {"gpt-4o", "o200k", false, true},
    {"llama4", "o200k", false, true, true},
    {"tekken", "tekken", false, true, true},
    {"deepseek-v3", "deepseek3"},
};

PretokenizeStep digits(SplitBehavior behavior) {
  return {.kind = PretokenizeStep::Kind::characters, .classes = kSplitDigit, .behavior = behavior};
}

Pretokenizer make_pretokenizer(std::string_view steps) {
  const PretokenizeStep gpt2{.kind = PretokenizeStep::Kind::byte_level, .uses_regex = true};
  const PretokenizeStep bytes{.kind = PretokenizeStep::Kind::byte_level, .uses_regex = false};
  if (steps == "gpt2") return Pretokenizer({gpt2});
  if (steps == "digits gpt2") return Pretokenizer({digits(SplitBehavior::isolated), gpt2});
  if (steps == "falcon") {
    const PretokenizeStep punctuation{
        .kind = PretokenizeStep::Kind::characters, .classes = kSplitPunctuation, .behavior = SplitBehavior::contiguous};
    return Pretokenizer({punctuation, gpt2, digits(SplitBehavior::contiguous), pattern_step("[0-9][0-9][0-9]")});
  }
  if (steps == "deepseek3") {
    return Pretokenizer({pattern_step(R"(\p{N}{1,3})"), pattern_step("[一-龥぀-ゟ゠-ヿ]+"),
                         pattern_step(R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
                                      R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"),
                         bytes});
  }
  return Pretokenizer({pattern_step(known_pattern(steps).regex), bytes});
}

const Pre& find_pre(const std::string& name) {
  for (const Pre& pre : kPres)
    if (pre.name == name) return pre;
  std::string known;
  for (const Pre& pre : kPres) known.append(known.empty() ? "" : ", ").append(pre.name);
  fail(ExitCode::unreadable, "GGUF: tokenizer.ggml.pre '", name, "' isn't supported; known: ", known);
}

class Reader {
 public:
  explicit Reader(const GgufVocab& vocab) : vocab_(vocab), parts_(std::make_shared<TokenizerParts>()) {}

  Tokenizer read() {
    const bool is_bpe = vocab_.model == "gpt2";
    if (!is_bpe && vocab_.model != "llama")
      fail(ExitCode::unreadable, "GGUF: tokenizer.ggml.model '", vocab_.model, "' isn't supported; known: gpt2, llama");
    read_tokens(is_bpe);
    const bool add_bos = is_bpe ? read_bpe() : read_sentencepiece();
    parts_->bos = special_id(vocab_.bos_id, "bos", is_bpe ? kNoToken : 1);
    parts_->eos = special_id(vocab_.eos_id, "eos", is_bpe ? kNoToken : 2);
    finish_parts(*parts_, std::move(model_));
    set_bos_eos(*parts_, vocab_.add_bos.value_or(add_bos), vocab_.add_eos.value_or(false));
    return Tokenizer(parts_);
  }

 private:
  size_t n_tokens() const { return vocab_.tokens.size(); }
  int32_t type_of(TokenId id) const {
    if (!vocab_.token_types.empty()) return vocab_.token_types[id];
    const auto is = [&](const std::optional<int64_t>& special) { return special == id; };
    return is(vocab_.unk_id) ? kUnknown : is(vocab_.bos_id) || is(vocab_.eos_id) || is(vocab_.pad_id) ? kControl : kNormal;
  }

  std::optional<TokenId> special_id(std::optional<int64_t> id, const char* name, TokenId otherwise) const {
    if (!id) return otherwise >= 0 && parts_->tokens.has(otherwise) ? std::optional(otherwise) : std::nullopt;
    if (*id < 0 || *id >= static_cast<int64_t>(n_tokens()))
      fail(ExitCode::unreadable, "GGUF: the ", name, " token has id ", *id, ", the vocabulary ", n_tokens(), " tokens");
    return static_cast<TokenId>(*id);
  }

  void read_tokens(bool is_bpe) {
    if (n_tokens() == 0 || n_tokens() > static_cast<size_t>(kTokenIdLimit))
      fail(ExitCode::unreadable, "GGUF: a vocabulary of ", n_tokens(), " tokens");
    if (!vocab_.token_types.empty() && vocab_.token_types.size() != n_tokens())
      fail(ExitCode::unreadable, "GGUF: ", vocab_.token_types.size(), " token types for ", n_tokens(), " tokens");
    for (TokenId id = 0; id < static_cast<TokenId>(n_tokens()); ++id) {
      const std::string& text = vocab_.tokens[id];
      // Filler up to a round number of rows, which the original vocabulary does not have.
      const bool is_filler = type_of(id) != kNormal && text == concat("[PAD", id, "]");
      if (!is_filler) parts_->tokens.add(id, text);
    }
    parts_->tokens.build_index();
    model_.in_model.assign(n_tokens(), false);
    std::vector<AddedToken> added;
    for (TokenId id = 0; id < parts_->tokens.n_ids(); ++id) {
      if (!parts_->tokens.has(id)) continue;
      const int32_t type = type_of(id);
      const bool special = type == kControl || type == kUnknown;
      model_.in_model[id] = true;
      const bool is_added = (special || type == kUserDefined) && !vocab_.tokens[id].empty();
      if (is_added && find_invalid_utf8(vocab_.tokens[id]) != std::string_view::npos)  // it would be found inside characters
        fail(ExitCode::unreadable, "GGUF: token ", id, ", which is looked for in texts, is no UTF-8");
      if (is_added) added.push_back({.id = id, .content = vocab_.tokens[id], .special = special});
    }
    if (!is_bpe && vocab_.add_space_prefix.value_or(true))
      steps_.push_back({.kind = NormalizeStep::Kind::prepend, .text = "\u2581"});
    if (!is_bpe) steps_.push_back({.kind = NormalizeStep::Kind::replace, .text = " ", .replacement = "\u2581"});
    parts_->added = AddedTokens(std::move(added), Normalizer());
  }

  bool read_bpe() {
    const Pre& pre = find_pre(vocab_.pre);
    if (pre.nfc) steps_.push_back({.kind = NormalizeStep::Kind::nfc});
    parts_->normalizer = Normalizer(steps_);
    parts_->pretokenizer = make_pretokenizer(pre.steps);
    model_.bpe.ignore_merges = pre.ignore_merges;
    model_.decoder.kind = DecoderOptions::Kind::byte_level;
    std::string joined;
    for (const std::string& merge : vocab_.merges) {
      const auto rank = static_cast<int32_t>(model_.merges.size());
      const size_t space = merge.find(' ', 1);
      if (space == std::string::npos) fail(ExitCode::unreadable, "GGUF: merge ", rank, " isn't a pair: ", merge);
      const std::string_view left = std::string_view(merge).substr(0, space), right = std::string_view(merge).substr(space + 1);
      joined.assign(left).append(right);
      const BpeMerge ids{parts_->tokens.find(left), parts_->tokens.find(right), parts_->tokens.find(joined), rank};
      if (ids.left < 0 || ids.right < 0 || ids.result < 0)
        fail(ExitCode::unreadable, "GGUF: merge ", rank, " (", merge, ") is of tokens that are not in the vocabulary");
      model_.merges.push_back(ids);
    }
    return pre.add_bos;
  }

  // SentencePiece merges the pair whose token has the highest score, the leftmost of equal ones: a merge for each cut of
  // each token, ranked by score.
  bool read_sentencepiece() {
    parts_->normalizer = Normalizer(steps_);
    if (vocab_.scores.size() != n_tokens())
      fail(ExitCode::unreadable, "GGUF: ", vocab_.scores.size(), " scores for ", n_tokens(), " tokens");
    if (std::any_of(vocab_.scores.begin(), vocab_.scores.end(), [](float score) { return std::isnan(score); }))
      fail(ExitCode::unreadable, "GGUF: a token's score is not a number");
    std::vector<TokenId> order(n_tokens());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) { return vocab_.scores[a] > vocab_.scores[b]; });
    int32_t rank = -1;
    float score = 0;
    for (const TokenId id : order) {
      if (rank < 0 || vocab_.scores[id] != score) ++rank;
      score = vocab_.scores[id];
      if (is_piece(id)) add_cuts(id, rank);
    }
    model_.bpe.byte_fallback = true;
    model_.bpe.fuse_unk = true;
    model_.bpe.unk = special_id(vocab_.unk_id, "unknown", 0).value_or(kNoToken);
    model_.decoder.kind = DecoderOptions::Kind::pieces;
    model_.decoder.replacements = {{"\u2581", " "}};
    model_.decoder.byte_fallback = true;
    if (vocab_.add_space_prefix.value_or(true)) {
      model_.decoder.strip.assign(1, ' ');
      model_.decoder.n_strip = 1;
    }
    return true;
  }

  bool is_piece(TokenId id) const {
    const int32_t type = type_of(id);
    return parts_->tokens.has(id) && type != kControl && type != kUnknown && type != kByte;
  }

  void add_cuts(TokenId id, int32_t rank) {
    const std::string_view text = parts_->tokens.text(id);
    if (text.size() > kMaxPieceBytes) fail(ExitCode::unreadable, "GGUF: token ", id, " has ", text.size(), " bytes");
    if (find_invalid_utf8(text) != std::string_view::npos) fail(ExitCode::unreadable, "GGUF: token ", id, " is no UTF-8");
    for (size_t cut = text.empty() ? 0 : char_at(text, 0).next; cut < text.size(); cut = char_at(text, cut).next) {
      const TokenId left = parts_->tokens.find(text.substr(0, cut)), right = parts_->tokens.find(text.substr(cut));
      if (left != kNoToken && right != kNoToken && is_piece(left) && is_piece(right))
        model_.merges.push_back({left, right, id, rank});
    }
  }

  const GgufVocab& vocab_;
  std::shared_ptr<TokenizerParts> parts_;
  std::vector<NormalizeStep> steps_;
  ModelTokens model_;
};

}  // namespace

Tokenizer Tokenizer::from_gguf(const GgufVocab& vocab) { return Reader(vocab).read(); }

}  // namespace lockstep
