// The journal: every finished line's record, on disk before it is reported done. Append-only shards, one writer each;
// recovery reads them all and says what is done. Not for the order of lines: merge.h makes the final files.
//   JournalWriter w(out, epoch, replica);  w.append(entry);  if (w.commit_due()) w.commit();
//   JournalState s = recover_journal(out);  s.done.contains(id)
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/durable_file.h"
#include "base/hash.h"
#include "journal/shard.h"

namespace lockstep {

struct JournalWriterOptions {
  double commit_s = 2;              // age of the oldest record not yet committed (monotonic clock)
  uint64_t commit_bytes = 8 << 20;  // or this much of them
  int64_t commit_records = 1024;    // or so many
};

// One a replica root and epoch; not for several threads at once.
class JournalWriter {
 public:
  // Creates the shard: a second writer of this epoch and number is refused.
  JournalWriter(const std::string& out_dir, int64_t epoch, int writer, JournalWriterOptions options = {});

  // Buffered; written at 1 MiB, committed at 64 MiB at the latest.
  void append(const JournalEntry& entry);

  // Everything appended is on disk after this; returns the records committed since the writer began.
  // Throws Error (output_io) with path and reason. A full disk ends it at once. After any other failed write or sync the
  // uncommitted records go into a second file (e0003-w002b.jsonl), once. Throws Error (usage) when a later epoch is open:
  // then another job owns the directory and these records may not count.
  int64_t commit();

  bool commit_due() const;
  int64_t n_committed() const { return n_committed_; }

 private:
  void open_shard();
  void write_pending();
  void move_on(const char* operation, int error);

  std::string out_dir_, path_;
  ShardName name_;
  JournalWriterOptions options_;
  FileHandle file_;
  std::string pending_;    // lines since the last commit
  size_t n_written_ = 0;   // bytes of them that are in the file
  int64_t n_pending_ = 0;  // records
  int64_t n_committed_ = 0;
  bool broken_ = false;
  std::chrono::steady_clock::time_point first_pending_;
};

// Where the record of a finished line is.
struct DoneRecord {
  uint64_t content = 0;
  uint64_t offset = 0;      // of the record in its shard
  uint32_t length = 0;      // of the record, without the line feed
  uint32_t shard : 31 = 0;  // index into JournalState::shards
  uint32_t failed : 1 = 0;
};

// Which of two good records of an id counts. Either way the lower epoch before the higher, then writer, then position.
enum class Prefer : uint8_t {
  answered,  // one that succeeded before one that failed
  first,
};

// The records by id: a sorted vector, 40 bytes a record, since millions of them stand beside the input's lines.
//   records.add(id, r); ...   n_dropped = records.settle(prefer);   if (auto at = records.find(id); at != records.end()) ...
class DoneRecords {
 public:
  using Entry = std::pair<Digest, DoneRecord>;
  using Iterator = std::vector<Entry>::const_iterator;

  void add(const Digest& id, const DoneRecord& record) { entries_.emplace_back(id, record); }
  int64_t settle(Prefer prefer);  // after the last add: one record an id stays; returns how many went

  Iterator find(const Digest& id) const;
  bool contains(const Digest& id) const { return find(id) != end(); }
  const DoneRecord& at(const Digest& id) const;        // throws Error where there is none
  Iterator begin() const { return entries_.begin(); }  // in order of ids
  Iterator end() const { return entries_.end(); }
  size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }

 private:
  std::vector<Entry> entries_;
};

struct ShardState {
  ShardName name;
  bool sealed = false;
  uint64_t sealed_length = 0;  // where sealed: later bytes never count
  uint64_t valid_end = 0;      // after the last good line
};

struct JournalState {
  std::string out_dir;
  DoneRecords done;
  std::vector<ShardState> shards;  // that count, in order of epoch and writer
  int64_t n_failed = 0;            // of `done`
  int64_t n_damaged = 0;           // lines skipped: bad CRC, zeros, garbage, torn at the end
  int64_t n_duplicates = 0;        // good lines whose id was known
  int64_t first_epoch = 1;         // older ones belong to a run that was overwritten
  int64_t last_epoch = 0;          // the highest number ever used
  std::vector<std::string> notes;  // for the log, one a shard that has something to report
};

// Reads all shards (streaming), changes nothing. Missing journal: an empty state.
JournalState recover_journal(const std::string& out_dir, Prefer prefer = Prefer::answered);

// The record's JSON, read again; Error (output_io) where its line is no longer good.
std::string read_record(const JournalState& state, const DoneRecord& record);

}  // namespace lockstep
