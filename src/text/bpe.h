// Byte-pair encoding of one pre-token: characters or bytes to symbols, then merges in order of rank, the leftmost first.
// Exact as Hugging Face's BPE model; O(n log n) in the length of the word. Not for splitting text into words.
//   BpeScratch scratch; bpe.encode(" hello", ids, scratch);   appends
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/string_table.h"

namespace lockstep {

struct BpeMerge {
  TokenId left, right, result;
  int32_t rank;  // lower merges first; merges of equal rank: leftmost first
};

struct BpeOptions {
  bool byte_level = false;     // words are bytes; else UTF-8 text
  bool ignore_merges = false;  // a word that is a token stays whole, whatever the merges say
  bool byte_fallback = false;  // a character outside the vocabulary becomes the tokens <0xNN> of its bytes
  bool fuse_unk = false;       // neighbouring unknown characters become one unknown token
  TokenId unk = kNoToken;      // kNoToken: unknown characters vanish
};

struct BpeScratch {  // reused between words; one a thread
  struct Candidate {
    int32_t rank, position;
    TokenId result;
  };
  std::vector<TokenId> symbols;
  std::vector<int32_t> previous, next;
  std::vector<Candidate> heap;
};

class Bpe {
 public:
  Bpe() = default;
  // `words`: indexed; as words are (bytes or UTF-8). Of two merges of one pair the last counts.
  Bpe(StringTable words, const std::vector<BpeMerge>& merges, const BpeOptions& options);

  void encode(std::string_view word, std::vector<TokenId>& out, BpeScratch& scratch) const;

  const StringTable& words() const { return words_; }

 private:
  struct Slot {
    uint64_t pair = 0;
    int32_t rank = -1;  // -1: free
    TokenId result = kNoToken;
  };
  const Slot* find_merge(TokenId left, TokenId right) const;
  bool may_cut_before_meta(std::string_view text, size_t at) const;
  void find_cuts(const std::vector<BpeMerge>& merges);
  void encode_word(std::string_view word, std::vector<TokenId>& out, BpeScratch& scratch) const;
  void split_bytes(std::string_view word, std::vector<TokenId>& symbols) const;
  void split_characters(std::string_view word, std::vector<TokenId>& symbols) const;
  void add_symbol(std::string_view text, std::vector<TokenId>& symbols, bool& unk_pending) const;
  void merge_short(std::vector<TokenId>& symbols) const;
  void merge_long(BpeScratch& scratch) const;

  StringTable words_;
  BpeOptions options_;
  std::vector<Slot> merges_;                      // open addressing, a power of two, at most half full
  std::array<TokenId, 256> byte_tokens_{};        // token of a byte (byte level) or an ASCII character; else kNoToken
  std::array<TokenId, 256> fallback_{};           // <0xNN>
  bool cuts_at_meta_ = false;                     // no merge crosses the border before U+2581, but for
  std::vector<uint32_t> no_cut_after_;            // these code points (ascending)
  std::unique_ptr<std::atomic<uint8_t>[]> kept_;  // by id: 0 unknown, 1 the merges make this token of its text, 2 they don't
};

}  // namespace lockstep
