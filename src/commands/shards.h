// Job arrays: each task runs one shard of the input in a directory of its own, whose manifest says which; `lockstep merge`
// joins them. The order of lines among shards: InputFile::keep_shard.
//   fields.push_back({kShardField, shard_name({options.shard, options.n_shards})});
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "journal/input_file.h"
#include "journal/journal.h"
#include "journal/manifest.h"

namespace lockstep {

inline constexpr const char* kShardField = "--shard";  // of the manifest; absent: the whole input

struct InputShard {
  int64_t shard = 0, n_shards = 1;
  bool operator==(const InputShard&) const = default;
};

std::string shard_name(const InputShard& shard);  // "1/3", "2/3", "3/3": the last is the one with remainder 0
InputShard shard_of(const Manifest& manifest);    // Error (usage) where the field can't be understood

// One directory to merge.
struct ShardDirectory {
  std::string path;
  Manifest manifest;
  InputShard shard;
};

// Error (usage), with names, where the directories don't fit together: other options, other numbers of shards, a shard twice.
void check_together(std::span<const ShardDirectory> directories);

// The shards of which there is no directory though the input has lines for them.
std::vector<int64_t> missing_shards(std::span<const ShardDirectory> directories, size_t n_lines);

// "DIR (shard 2/3) lacks 5 lines", of each directory whose journal (in the same order) lacks lines of its shard; empty: none.
std::string unfinished_shards(std::span<const ShardDirectory> directories, std::span<const JournalState> journals,
                              std::span<const InputLine> lines);

}  // namespace lockstep
