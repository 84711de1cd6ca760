#include "sched/prefix_cache.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/hash.h"

namespace lockstep {

size_t PrefixCache::Hash::operator()(const Key& key) const {
  static_assert(std::has_unique_object_representations_v<Key>);
  return hash64({reinterpret_cast<const char*>(&key), sizeof key});
}

PrefixCache::Key PrefixCache::key_of(Chain before, std::span<const TokenId> tokens) {
  check(tokens.size() == kPageSize, "a page of ", tokens.size(), " tokens");
  Key key{.before = before};
  std::copy(tokens.begin(), tokens.end(), key.tokens.begin());
  return key;
}

PrefixCache::Found PrefixCache::find(std::span<const TokenId> tokens, int64_t most) const {
  Found found;
  const int64_t n = std::min(most, static_cast<int64_t>(tokens.size()) / kPageSize);
  for (int64_t i = 0; i < n; ++i) {
    const auto entry = entries_.find(key_of(found.chain, tokens.subspan(static_cast<size_t>(i) * kPageSize, kPageSize)));
    if (entry == entries_.end() || !pool_.is_kept(entry->second.page)) break;
    found.pages.push_back(entry->second.page);
    found.chain = entry->second.chain;
  }
  return found;
}

PrefixCache::Chain PrefixCache::keep(Chain before, std::span<const TokenId> tokens, PageId page) {
  const Key key = key_of(before, tokens);
  if (const auto known = entries_.find(key); known != entries_.end() && pool_.is_kept(known->second.page))
    return known->second.chain;
  Key& mine = entry_of_page_.at(static_cast<size_t>(page));
  if (const auto old = entries_.find(mine); old != entries_.end() && old->second.page == page) entries_.erase(old);
  mine = key;
  entries_[key] = {page, ++last_};
  pool_.keep(page);
  return last_;
}

}  // namespace lockstep
