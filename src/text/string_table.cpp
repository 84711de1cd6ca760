#include "text/string_table.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/error.h"
#include "base/hash.h"

namespace lockstep {

void StringTable::add(TokenId id, std::string_view text, bool findable) {
  check(id >= 0 && id < kTokenIdLimit, "token id ", id, " is not below ", kTokenIdLimit);
  check(text.size() <= std::numeric_limits<uint32_t>::max(), "token of ", text.size(), " bytes");
  if (id >= n_ids()) entries_.resize(static_cast<size_t>(id) + 1);
  entries_[id] = {arena_.size(), static_cast<uint32_t>(text.size()), true, findable};
  arena_ += text;
}

void StringTable::build_index() {
  size_t n_findable = 0;
  for (const Entry& entry : entries_) n_findable += entry.findable;
  slots_.assign(std::bit_ceil(2 * n_findable + 1), Slot{});
  const size_t mask = slots_.size() - 1;
  for (TokenId id = 0; id < n_ids(); ++id) {
    if (!entries_[id].findable || find(text(id)) != kNoToken) continue;
    longest_ = std::max<size_t>(longest_, entries_[id].size);
    const uint64_t hash = hash64(text(id));
    size_t at = hash & mask;
    while (slots_[at].id != kNoToken) at = (at + 1) & mask;
    slots_[at] = {static_cast<uint32_t>(hash >> 32), id};
  }
}

TokenId StringTable::find(std::string_view wanted) const {
  if (slots_.empty()) return kNoToken;
  const size_t mask = slots_.size() - 1;
  const uint64_t hash = hash64(wanted);
  for (size_t at = hash & mask; slots_[at].id != kNoToken; at = (at + 1) & mask)
    if (slots_[at].tag == static_cast<uint32_t>(hash >> 32) && text(slots_[at].id) == wanted) return slots_[at].id;
  return kNoToken;
}

}  // namespace lockstep
