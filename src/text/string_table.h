// Strings by id and ids by string, in one arena: a vocabulary. Ids may have holes. Add first, then index once, then read
// from any thread.
//   StringTable t; t.add(5, "the"); t.build_index();   t.find("the") == 5
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace lockstep {

inline constexpr TokenId kNoToken = -1;
inline constexpr TokenId kTokenIdLimit = 1 << 22;  // ids are below: bounds what a hostile file can make us allocate

class StringTable {
 public:
  // 0 <= id < kTokenIdLimit. A second string for an id replaces the first.
  void add(TokenId id, std::string_view text, bool findable = true);
  void build_index();  // where two ids have one string, the lower id is found

  int32_t n_ids() const { return static_cast<int32_t>(entries_.size()); }  // highest id + 1
  bool has(TokenId id) const { return id >= 0 && id < n_ids() && entries_[id].present; }
  std::string_view text(TokenId id) const {  // "" for a hole
    if (!has(id)) return {};
    return std::string_view(arena_).substr(entries_[id].begin, entries_[id].size);
  }
  TokenId find(std::string_view text) const;   // kNoToken if absent
  size_t longest() const { return longest_; }  // bytes of the longest findable string

 private:
  struct Entry {
    size_t begin = 0;
    uint32_t size = 0;
    bool present = false, findable = false;
  };
  struct Slot {
    uint32_t tag;  // high half of the hash
    TokenId id = kNoToken;
  };
  std::string arena_;
  std::vector<Entry> entries_;
  std::vector<Slot> slots_;  // open addressing, a power of two, at most half full
  size_t longest_ = 0;
};

}  // namespace lockstep
