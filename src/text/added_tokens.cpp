#include "text/added_tokens.h"

#include <algorithm>

#include "base/error.h"

namespace lockstep {
namespace {

constexpr size_t kMaxTokenBytes = 1024;  // the search takes this many steps a byte at worst

bool is_word(std::string_view text, size_t at) { return unicode_classes().of(char_at(text, at).value) & kAddedTokenWord; }
bool is_space(std::string_view text, size_t at) { return unicode_classes().of(char_at(text, at).value) & kSpace; }

}  // namespace

void AddedTokens::Trie::add(std::string_view text, int32_t token) {
  if (nodes.empty()) nodes.emplace_back();
  starts[static_cast<uint8_t>(text[0])] = true;
  uint32_t at = 0;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    auto& next = nodes[at].next;
    const auto found = std::lower_bound(next.begin(), next.end(), std::pair{byte, uint32_t{0}});
    if (found != next.end() && found->first == byte) {
      at = found->second;
      continue;
    }
    const auto fresh = static_cast<uint32_t>(nodes.size());
    next.insert(found, {byte, fresh});
    nodes.emplace_back();
    at = fresh;
  }
  if (nodes[at].token < 0) nodes[at].token = token;  // of equal strings the first counts
}

const AddedTokens::Node* AddedTokens::Trie::step(const Node& from, uint8_t byte) const {
  const auto found = std::lower_bound(from.next.begin(), from.next.end(), std::pair{byte, uint32_t{0}});
  return found != from.next.end() && found->first == byte ? &nodes[found->second] : nullptr;
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const Normalizer& normalizer) : tokens_(std::move(tokens)) {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    AddedToken& token = tokens_[i];
    token.pattern = token.normalized ? normalizer.apply(token.content) : token.content;
    if (token.pattern.empty()) continue;
    if (token.pattern.size() > kMaxTokenBytes)
      fail(ExitCode::unreadable, "tokenizer: added token ", token.id, " has ", token.pattern.size(), " bytes, more than ",
           kMaxTokenBytes);
    (token.normalized ? after_ : before_).add(token.pattern, static_cast<int32_t>(i));
  }
}

void AddedTokens::split(std::string_view text, std::span<const Span> untrusted, bool normalized,
                        std::vector<Segment>& segments) const {
  const Trie& trie = normalized ? after_ : before_;
  size_t done = 0;    // text up to here is in segments
  Span spaces{1, 0};  // a run of white space that was looked at; none yet
  const auto emit = [&](TokenId token, size_t begin, size_t end) {
    if (begin < end) segments.push_back({token, {begin, end}});
  };
  size_t next_untrusted = 0;
  for (size_t at = 0; !trie.nodes.empty() && at < text.size();) {
    if (!trie.starts[static_cast<uint8_t>(text[at])]) {
      ++at;
      continue;
    }
    while (next_untrusted < untrusted.size() && untrusted[next_untrusted].end <= at) ++next_untrusted;
    const size_t trusted_end = next_untrusted < untrusted.size() ? untrusted[next_untrusted].begin : text.size();
    const AddedToken* found = nullptr;
    size_t found_end = at;
    const Node* node = &trie.nodes[0];
    for (size_t i = at; i < text.size() && (node = trie.step(*node, static_cast<uint8_t>(text[i]))) != nullptr; ++i) {
      if (node->token < 0) continue;
      const AddedToken& token = tokens_[node->token];
      if (token.special && i + 1 > trusted_end) continue;
      found = &token;
      found_end = i + 1;
    }
    if (found == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at, end = found_end;
    at = end;
    if (found->single_word &&
        ((begin > 0 && is_word(text, char_before(text, begin))) || (end < text.size() && is_word(text, end))))
      continue;
    while (found->lstrip && begin > done && is_space(text, char_before(text, begin))) begin = char_before(text, begin);
    if (found->lstrip) begin = std::max(begin, done);
    if (found->rstrip) {
      if (end < spaces.begin || end > spaces.end) {
        spaces = {end, end};
        while (spaces.end < text.size() && is_space(text, spaces.end)) spaces.end = char_at(text, spaces.end).next;
      }
      end = spaces.end;
    }
    emit(kNoToken, done, begin);
    emit(found->id, begin, end);  // nothing, if a token before it took all
    done = end;                   // the search goes on before white space that was taken: a token may begin in it
  }
  emit(kNoToken, done, text.size());
}

}  // namespace lockstep
