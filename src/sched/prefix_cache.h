// Finds full KV pages again by what they hold: the 16 tokens of a page and all tokens before them. An entry is (the entry of
// the page before, these 16 tokens), compared whole, so that no collision of hashes can ever hand out another text's KV. A page
// whose memory the pool has given to somebody else is found no more. Not for pages whose tokens aren't known yet.
//   PrefixCache cache(pool);  cache.keep(chain, tokens, page);  cache.find(tokens, most)
//
// A child's page is given back before its parent's (Sequence::drop_pages), so that the pool takes the ends of prefixes first.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "records/step_batch.h"
#include "sched/page_pool.h"

namespace lockstep {

class PrefixCache {
 public:
  using Chain = int64_t;  // an entry, and by it all tokens from the first page to its own
  static constexpr Chain kStart = 0;

  explicit PrefixCache(PagePool& pool) : pool_(pool), entry_of_page_(static_cast<size_t>(pool.n_pages())) {}

  struct Found {
    std::vector<PageId> pages;  // of the first tokens; valid until the pool allocates
    Chain chain = kStart;       // after the last of them
  };
  // The longest known prefix of `tokens`, in whole pages, `most` pages at most.
  Found find(std::span<const TokenId> tokens, int64_t most) const;

  // `page` holds the KV of these kPageSize tokens after `before`. If another page is known for them, that one stays.
  Chain keep(Chain before, std::span<const TokenId> tokens, PageId page);

 private:
  struct Key {
    Chain before = kStart;
    std::array<TokenId, kPageSize> tokens{};
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const;
  };
  struct Entry {
    PageId page = -1;
    Chain chain = kStart;
  };
  static Key key_of(Chain before, std::span<const TokenId> tokens);

  PagePool& pool_;
  std::unordered_map<Key, Entry, Hash> entries_;  // one a page at most; never iterated
  std::vector<Key> entry_of_page_;                // [n_pages]  its key, if it was ever kept
  Chain last_ = kStart;
};

}  // namespace lockstep
