#include "text/tokenizer.h"

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"
#include "text/byte_level.h"
#include "text/tokenizer_parts.h"

namespace lockstep {
namespace {

std::string valid_utf8(std::string_view text) {
  return find_invalid_utf8(text) == std::string_view::npos ? std::string(text) : lossy_utf8(text);
}

// Encodes one prompt; holds what is reused between its segments.
class Encoder {
 public:
  Encoder(const TokenizerParts& parts, std::string_view text, std::span<const Span> untrusted)
      : parts_(parts), text_(text), untrusted_(untrusted), budget_(text.size()) {}

  std::vector<TokenId> encode() {
    std::vector<Segment> segments;
    parts_.added.split(text_, untrusted_, false, segments);
    for (const Segment& segment : segments) {
      if (segment.token != kNoToken) {
        ids_.push_back(segment.token);
      } else {
        encode_segment(segment.span);
      }
    }
    return std::move(ids_);
  }

 private:
  void encode_segment(Span span) {
    NormalText normal{std::string(text_.substr(span.begin, span.end - span.begin)), {}};
    if (parts_.added.any_normalized() && !untrusted_.empty()) mark_trusted(span, normal.trusted);
    parts_.normalizer.apply(normal);
    const bool at_start = span.begin == 0;
    if (!parts_.added.any_normalized()) return encode_words(std::move(normal.text), at_start);
    std::vector<Segment> segments;
    parts_.added.split(normal.text, untrusted_spans(normal.trusted), true, segments);
    for (const Segment& segment : segments) {
      if (segment.token != kNoToken) {
        ids_.push_back(segment.token);
      } else {
        encode_words(normal.text.substr(segment.span.begin, segment.span.end - segment.span.begin),
                     at_start && segment.span.begin == 0);
      }
    }
  }

  void encode_words(std::string text, bool at_start) {
    parts_.pretokenizer.split(std::move(text), at_start, budget_, words_);
    for (const Span word : words_.spans)
      parts_.bpe.encode(std::string_view(words_.text).substr(word.begin, word.end - word.begin), ids_, scratch_);
  }

  void mark_trusted(Span span, std::string& trusted) const {
    trusted.assign(span.end - span.begin, 1);
    auto at = std::partition_point(untrusted_.begin(), untrusted_.end(), [&](const Span& u) { return u.end <= span.begin; });
    for (; at != untrusted_.end() && at->begin < span.end; ++at)
      std::fill(trusted.begin() + static_cast<ptrdiff_t>(std::max(at->begin, span.begin) - span.begin),
                trusted.begin() + static_cast<ptrdiff_t>(std::min(at->end, span.end) - span.begin), 0);
  }

  static std::vector<Span> untrusted_spans(std::string_view trusted) {
    std::vector<Span> spans;
    for (size_t i = 0; i < trusted.size(); ++i) {
      if (trusted[i]) continue;
      if (!spans.empty() && spans.back().end == i) {
        ++spans.back().end;
      } else {
        spans.push_back({i, i + 1});
      }
    }
    return spans;
  }

  const TokenizerParts& parts_;
  std::string_view text_;
  std::span<const Span> untrusted_;
  PatternBudget budget_;
  std::vector<TokenId> ids_;
  Words words_;
  BpeScratch scratch_;
};

std::vector<TokenId> encode_prompt(const TokenizerParts& parts, std::string_view text, std::span<const Span> untrusted,
                                   bool add_special_tokens) {
  std::vector<TokenId> ids = Encoder(parts, text, untrusted).encode();
  if (!add_special_tokens) return ids;
  auto prefix_end = parts.prefix.end();
  if (!parts.prefix.empty() && !ids.empty() && ids[0] == parts.prefix.back()) --prefix_end;  // the text brings its own BOS
  ids.insert(ids.begin(), parts.prefix.begin(), prefix_end);
  ids.insert(ids.end(), parts.suffix.begin(), parts.suffix.end());
  return ids;
}

}  // namespace

std::vector<TokenId> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  return encode_prompt(*parts_, valid_utf8(text), {}, add_special_tokens);
}

std::vector<TokenId> Tokenizer::encode(std::span<const TextPiece> pieces, bool add_special_tokens, bool parse_untrusted) const {
  std::string text;
  std::vector<Span> untrusted;
  for (const TextPiece& piece : pieces) {
    const size_t begin = text.size();
    text += valid_utf8(piece.text);
    if (piece.trusted || parse_untrusted || text.size() == begin) continue;
    if (!untrusted.empty() && untrusted.back().end == begin) {
      untrusted.back().end = text.size();
    } else {
      untrusted.push_back({begin, text.size()});
    }
  }
  return encode_prompt(*parts_, text, untrusted, add_special_tokens);
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special_tokens) const {
  const Decoder& decoder = parts_->decoder;
  DecodeState state;
  std::string out;
  for (const TokenId id : ids)
    if (!skip_special_tokens || !parts_->is_special(id)) decoder.append(id, state, out);
  decoder.finish(state, out);
  return lossy_utf8(out);
}

std::string Tokenizer::token_bytes(TokenId id) const {
  if (parts_->decoder.is_byte(id)) return {parts_->decoder.byte(id)};
  return std::string(parts_->decoder.piece(id));
}

int32_t Tokenizer::n_tokens() const { return parts_->tokens.n_ids(); }
bool Tokenizer::is_special(TokenId id) const { return parts_->is_special(id); }
std::optional<TokenId> Tokenizer::bos() const { return parts_->bos; }
std::optional<TokenId> Tokenizer::eos() const { return parts_->eos; }
std::string Tokenizer::bos_text() const { return parts_->bos ? std::string(parts_->tokens.text(*parts_->bos)) : std::string(); }
std::string Tokenizer::eos_text() const { return parts_->eos ? std::string(parts_->tokens.text(*parts_->eos)) : std::string(); }

std::optional<TokenId> Tokenizer::find(std::string_view token) const {
  const TokenId id = parts_->tokens.find(token);
  return id == kNoToken ? std::nullopt : std::optional(id);
}

void finish_parts(TokenizerParts& parts, ModelTokens model) {
  const StringTable& tokens = parts.tokens;
  model.bpe.byte_level = parts.pretokenizer.is_byte_level();
  parts.special.assign(tokens.n_ids(), false);
  // A special token comes from its text found whole: no merge and no lookup of a word may make one. Only where the search
  // can leave that text to the model, or where the token's bytes are those of another text, they may.
  std::vector<bool> found_only(tokens.n_ids());
  StringTable decoded = tokens;
  const auto added = parts.added.all();
  const bool leaves_text = std::any_of(added.begin(), added.end(), [](const AddedToken& token) { return token.single_word; });
  for (const AddedToken& token : added) {
    if (token.pattern != token.content) decoded.add(token.id, token.pattern);
    if (!token.special) continue;
    parts.special[token.id] = true;
    found_only[token.id] = !leaves_text && token.pattern == token.content &&
                           (!model.bpe.byte_level || bytes_of_level_text(token.content) == token.content);
  }
  StringTable words;
  for (TokenId id = 0; id < tokens.n_ids(); ++id) {
    if (!tokens.has(id) || !model.in_model[id]) continue;
    const auto bytes = model.bpe.byte_level ? bytes_of_level_text(tokens.text(id)) : std::nullopt;
    words.add(id, bytes ? *bytes : tokens.text(id), !found_only[id] && (bytes || !model.bpe.byte_level));
  }
  words.build_index();
  std::erase_if(model.merges, [&](const BpeMerge& merge) { return found_only[merge.result]; });
  parts.bpe = Bpe(std::move(words), model.merges, model.bpe);
  parts.decoder = Decoder(decoded, std::move(model.decoder));
}

void set_bos_eos(TokenizerParts& parts, std::optional<bool> add_bos, std::optional<bool> add_eos) {
  if (add_bos && parts.bos) {
    const bool has = !parts.prefix.empty() && parts.prefix.back() == *parts.bos;
    if (*add_bos && !has) parts.prefix.push_back(*parts.bos);
    if (!*add_bos && has) parts.prefix.pop_back();
  }
  if (add_eos && parts.eos) {
    const bool has = !parts.suffix.empty() && parts.suffix.front() == *parts.eos;
    if (*add_eos && !has) parts.suffix.insert(parts.suffix.begin(), *parts.eos);
    if (!*add_eos && has) parts.suffix.erase(parts.suffix.begin());
  }
}

}  // namespace lockstep
