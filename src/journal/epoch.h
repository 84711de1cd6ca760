// Epochs: each start of a run gets the next number, journal/epochs/0003.json, and no other job gets the same. Opening one
// seals the shards of all before: what a job that was thought dead still appends to them never counts. Not a lock: that is
// directory_lock.h; this is what keeps the results right where a lock was wrong.
//   JournalState s = recover_journal(out);  int64_t epoch = open_epoch(out, s, about);  JournalWriter w(out, epoch, 0);
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "journal/journal.h"

namespace lockstep {

std::string epoch_path(const std::string& out_dir, int64_t epoch);

// What the newest complete epoch file says; each one repeats the lengths of all older shards.
struct EpochSeals {
  int64_t last_epoch = 0;    // highest number used, complete or not
  int64_t sealed_below = 0;  // shards of lower epochs are sealed
  std::map<ShardName, uint64_t> lengths;

  // nullopt: not sealed, all of it counts. A sealed shard that is not listed was made too late: 0.
  std::optional<uint64_t> length_of(const ShardName& name) const;
};
EpochSeals read_epochs(const std::string& out_dir);

// Opens the epoch after state.last_epoch; `about` is a JSON object (hosts, layout) kept for people. In this order, so that a
// record that was ever reported committed is within a seal: the number is taken (the older writers see it and stop), older
// shards are synced and read to their ends, the lengths are written. Error (usage) when another job took the number.
int64_t open_epoch(const std::string& out_dir, const JournalState& state, const std::string& about);

}  // namespace lockstep
