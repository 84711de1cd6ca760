#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <string>

#include "base/error.h"
#include "base/utf8.h"
#include "text/byte_level.h"
#include "text/unicode_classes.h"

namespace lockstep {
namespace {

constexpr size_t kShortWord = 24;                // symbols; up to here rescanning beats a heap
constexpr std::string_view kMeta = "\u2581";     // the space of SentencePiece vocabularies
constexpr uint64_t kMixer = 0x9E3779B97F4A7C15;  // golden ratio: spreads the pairs over the table

uint64_t pair_of(TokenId left, TokenId right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}
size_t slot_of(uint64_t pair) { return static_cast<size_t>((pair * kMixer) >> 24); }

std::string fallback_name(unsigned byte) {
  constexpr char kHex[] = "0123456789ABCDEF";
  return {'<', '0', 'x', kHex[byte >> 4], kHex[byte & 15], '>'};
}

bool later(const BpeScratch::Candidate& a, const BpeScratch::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
}

}  // namespace

Bpe::Bpe(StringTable words, const std::vector<BpeMerge>& merges, const BpeOptions& options)
    : words_(std::move(words)), options_(options) {
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char character = static_cast<char>(byte);
    byte_tokens_[byte] = options.byte_level || byte < 0x80 ? words_.find({&character, 1}) : kNoToken;
    fallback_[byte] = options.byte_fallback ? words_.find(fallback_name(byte)) : kNoToken;
  }
  merges_.resize(std::bit_ceil(2 * merges.size() + 1));
  const size_t mask = merges_.size() - 1;
  for (const BpeMerge& merge : merges) {
    check(merge.rank >= 0, "merge of rank ", merge.rank);
    const uint64_t pair = pair_of(merge.left, merge.right);
    size_t at = slot_of(pair) & mask;
    while (merges_[at].rank >= 0 && merges_[at].pair != pair) at = (at + 1) & mask;
    merges_[at] = {pair, merge.rank, merge.result};
  }
  kept_ = std::make_unique<std::atomic<uint8_t>[]>(words_.n_ids());  // value-initialised
  const bool drops_characters = options.unk == kNoToken && std::count(fallback_.begin(), fallback_.end(), kNoToken) > 0;
  if (!options.byte_level && !options.ignore_merges && !drops_characters && words_.find(kMeta) != kNoToken) find_cuts(merges);
}

// A merge that crosses a border makes a token whose text has that border inside, so where no result has the two characters
// side by side a text may be cut between them: words stay short without a pre-tokenizer.
void Bpe::find_cuts(const std::vector<BpeMerge>& merges) {
  std::vector<bool> is_stand_in(words_.n_ids());  // for other text than its own
  for (const TokenId id : fallback_)
    if (id != kNoToken) is_stand_in[id] = true;
  if (options_.unk != kNoToken) is_stand_in[options_.unk] = true;
  for (const BpeMerge& merge : merges) {
    if (is_stand_in[merge.left] || is_stand_in[merge.right]) return;
    const std::string_view text = words_.text(merge.result);
    for (size_t at = text.find(kMeta, 1); at < text.size(); at = text.find(kMeta, at + 1))
      no_cut_after_.push_back(char_at(text, char_before(text, at)).value);
  }
  no_cut_after_.push_back(char_at(kMeta, 0).value);
  std::sort(no_cut_after_.begin(), no_cut_after_.end());
  no_cut_after_.erase(std::unique(no_cut_after_.begin(), no_cut_after_.end()), no_cut_after_.end());
  cuts_at_meta_ = true;
}

bool Bpe::may_cut_before_meta(std::string_view text, size_t at) const {
  const uint32_t before = char_at(text, char_before(text, at)).value;
  return !std::binary_search(no_cut_after_.begin(), no_cut_after_.end(), before);
}

void Bpe::encode(std::string_view word, std::vector<TokenId>& out, BpeScratch& scratch) const {
  if (!cuts_at_meta_) return encode_word(word, out, scratch);
  size_t begin = 0;
  for (size_t at = word.find(kMeta, 1); at < word.size(); at = word.find(kMeta, at + kMeta.size())) {
    if (!may_cut_before_meta(word, at)) continue;
    encode_word(word.substr(begin, at - begin), out, scratch);
    begin = at;
  }
  encode_word(word.substr(begin), out, scratch);
}

void Bpe::encode_word(std::string_view word, std::vector<TokenId>& out, BpeScratch& scratch) const {
  if (word.empty()) return;
  const TokenId whole = word.size() <= words_.longest() ? words_.find(word) : kNoToken;
  const uint8_t kept = whole == kNoToken ? 2 : kept_[whole].load(std::memory_order_relaxed);
  if (whole != kNoToken && (options_.ignore_merges || kept == 1)) {
    out.push_back(whole);
    return;
  }
  std::vector<TokenId>& symbols = scratch.symbols;
  symbols.clear();
  if (options_.byte_level) {
    split_bytes(word, symbols);
  } else {
    split_characters(word, symbols);
  }
  if (symbols.size() <= kShortWord) {
    merge_short(symbols);
  } else {
    merge_long(scratch);
  }
  out.insert(out.end(), symbols.begin(), symbols.end());
  if (kept == 0) {
    const bool is_kept = symbols.size() == 1 && symbols[0] == whole;
    kept_[whole].store(is_kept ? 1 : 2, std::memory_order_relaxed);  // threads may race here: they store the same value
  }
}

void Bpe::split_bytes(std::string_view word, std::vector<TokenId>& symbols) const {
  bool unk_pending = false;
  for (const char c : word) {
    const TokenId id = byte_tokens_[static_cast<unsigned char>(c)];
    if (id != kNoToken && !unk_pending) [[likely]] {
      symbols.push_back(id);
    } else {
      add_symbol({&c, 1}, symbols, unk_pending);
    }
  }
  if (unk_pending) symbols.push_back(options_.unk);
}

void Bpe::split_characters(std::string_view word, std::vector<TokenId>& symbols) const {
  bool unk_pending = false;
  for (size_t at = 0; at < word.size();) {
    const auto first = static_cast<unsigned char>(word[at]);
    if (byte_tokens_[first] != kNoToken && !unk_pending) {
      symbols.push_back(byte_tokens_[first]);
      ++at;
      continue;
    }
    const size_t next = char_at(word, at).next;
    add_symbol(word.substr(at, next - at), symbols, unk_pending);
    at = next;
  }
  if (unk_pending) symbols.push_back(options_.unk);
}

// One character (or byte) the slow way. An unknown one waits, since the next may fuse with it; fallback bytes overtake it,
// as they do in the model this follows.
void Bpe::add_symbol(std::string_view text, std::vector<TokenId>& symbols, bool& unk_pending) const {
  const TokenId id = words_.find(text);
  if (id != kNoToken) {
    if (unk_pending) symbols.push_back(options_.unk);
    unk_pending = false;
    symbols.push_back(id);
    return;
  }
  if (options_.byte_fallback) {
    const std::string bytes = options_.byte_level ? level_text_of_bytes(text) : std::string(text);
    const auto token = [&](char byte) { return fallback_[static_cast<unsigned char>(byte)]; };
    if (std::none_of(bytes.begin(), bytes.end(), [&](char byte) { return token(byte) == kNoToken; })) {
      for (const char byte : bytes) symbols.push_back(token(byte));
      return;
    }
  }
  if (options_.unk == kNoToken) return;
  if (unk_pending && !options_.fuse_unk) symbols.push_back(options_.unk);
  unk_pending = true;
}

const Bpe::Slot* Bpe::find_merge(TokenId left, TokenId right) const {
  const uint64_t pair = pair_of(left, right);
  const size_t mask = merges_.size() - 1;
  for (size_t at = slot_of(pair) & mask; merges_[at].rank >= 0; at = (at + 1) & mask)
    if (merges_[at].pair == pair) return &merges_[at];
  return nullptr;
}

void Bpe::merge_short(std::vector<TokenId>& symbols) const {
  constexpr int32_t kNone = std::numeric_limits<int32_t>::max();
  std::array<int32_t, kShortWord> ranks;  // of the pair (i, i + 1)
  std::array<TokenId, kShortWord> results;
  size_t n = symbols.size();
  const auto look_up = [&](size_t i) {
    const Slot* merge = find_merge(symbols[i], symbols[i + 1]);
    ranks[i] = merge ? merge->rank : kNone;
    results[i] = merge ? merge->result : kNoToken;
  };
  for (size_t i = 0; i + 1 < n; ++i) look_up(i);
  while (n > 1) {
    const size_t best = std::min_element(ranks.begin(), ranks.begin() + n - 1) - ranks.begin();
    if (ranks[best] == kNone) break;
    symbols[best] = results[best];
    --n;
    for (size_t i = best + 1; i < n; ++i) {
      symbols[i] = symbols[i + 1];
      if (i + 1 < n) ranks[i] = ranks[i + 1], results[i] = results[i + 1];
    }
    if (best > 0) look_up(best - 1);
    if (best + 1 < n) look_up(best);
  }
  symbols.resize(n);
}

// Symbols are a linked list over their first positions; candidates go stale when a side changes and are then passed over.
void Bpe::merge_long(BpeScratch& scratch) const {
  auto& [symbols, previous, next, heap] = scratch;
  check(symbols.size() < std::numeric_limits<int32_t>::max(), "word of ", symbols.size(), " symbols");
  const auto n = static_cast<int32_t>(symbols.size());
  previous.resize(n);
  next.resize(n);
  heap.clear();
  const auto candidate = [&](int32_t at) {
    const Slot* merge = find_merge(symbols[at], symbols[next[at]]);
    return BpeScratch::Candidate{merge ? merge->rank : -1, at, merge ? merge->result : kNoToken};
  };
  const auto push = [&](int32_t at) {
    if (const auto c = candidate(at); c.rank >= 0) {
      heap.push_back(c);
      std::push_heap(heap.begin(), heap.end(), later);
    }
  };
  for (int32_t i = 0; i < n; ++i) {
    previous[i] = i - 1;
    next[i] = i + 1 < n ? i + 1 : -1;
    if (next[i] >= 0)
      if (const auto c = candidate(i); c.rank >= 0) heap.push_back(c);
  }
  std::make_heap(heap.begin(), heap.end(), later);
  while (!heap.empty()) {
    const auto top = heap.front();
    std::pop_heap(heap.begin(), heap.end(), later);
    heap.pop_back();
    const int32_t at = top.position;
    if (symbols[at] == kNoToken || next[at] < 0 || candidate(at).result != top.result) continue;
    const int32_t right = next[at];
    symbols[at] = top.result;
    symbols[right] = kNoToken;
    next[at] = next[right];
    if (next[at] >= 0) previous[next[at]] = at;
    if (previous[at] >= 0) push(previous[at]);
    if (next[at] >= 0) push(at);
  }
  std::erase(symbols, kNoToken);
}

}  // namespace lockstep
