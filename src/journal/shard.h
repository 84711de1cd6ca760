// The journal's files on disk: names, lines, and the scan that finds the lines that count. What a line means to the run
// is journal.h's matter.
//
//   e0003-w002.jsonl     epoch 3, writer 2: one writer, append-only; e0003-w002b.jsonl: the same after an I/O error
//   7d1c00a4 o 0123456789abcdef0123456789abcdef 0011223344556677 3 {"id": ...}
//   CRC32C   | id                               content          epoch record
//            o: answered, e: failed          the CRC covers all between the first blank and the line feed
//
// A line counts if it is whole, its CRC is right, its epoch is its file's, and it ends within the file's sealed length.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"

namespace lockstep {

struct JournalEntry {
  Digest id;             // of the line's custom_id
  uint64_t content = 0;  // hash of what was asked
  bool failed = false;
  std::string record;  // one JSON object, no line feed
};

struct ShardName {
  int64_t epoch = 0;
  int32_t writer = 0;
  int32_t generation = 0;  // 0, or 1 for the file opened after an I/O error
  auto operator<=>(const ShardName&) const = default;
  std::string file() const;
};
std::optional<ShardName> parse_shard_name(std::string_view file);

std::string journal_path(const std::string& out_dir);                       // OUT/journal
std::string shard_path(const std::string& out_dir, const ShardName& name);  // OUT/journal/e0003-w002.jsonl
std::vector<ShardName> list_shards(const std::string& out_dir);             // sorted: epoch, writer, generation

inline constexpr double kStopPatience_s = 2;  // scan and merge, all but done as a rule, go on for so long after a stop signal
inline constexpr uint64_t kMaxRecordBytes = uint64_t{1} << 30;

void append_line(std::string& to, const JournalEntry& entry, int64_t epoch);
uint64_t header_bytes(int64_t epoch);  // of a line, before its record

struct ScannedLine {
  Digest id;
  uint64_t content = 0;
  bool failed = false;
  uint64_t offset = 0;  // of the record in the file
  uint32_t length = 0;  // of the record, without the line feed
};

// The line that `bytes` holds (without its line feed), where it is a good one of this epoch. Offset counts from `bytes`.
std::optional<ScannedLine> parse_line(std::string_view bytes, int64_t epoch);

struct ShardScan {
  uint64_t size = 0;          // bytes looked at: the end of the file or the limit
  uint64_t valid_end = 0;     // after the last good line, or where the scan began
  int64_t n_lines = 0;        // good ones
  int64_t n_damaged = 0;      // stretches between line feeds that are no good line
  uint64_t torn_bytes = 0;    // after the last line feed
  uint64_t first_damage = 0;  // offset, where n_damaged + torn_bytes > 0
};

// Reads from `from` (the begin of a line) to `limit` or the end of the file in blocks; memory doesn't depend on the length
// of lines or file. Calls `found` for each good line, in order. Error (stopped) after a stop signal.
ShardScan scan_shard(const std::string& path, int64_t epoch, uint64_t from, uint64_t limit,
                     const std::function<void(const ScannedLine&)>& found);

}  // namespace lockstep
