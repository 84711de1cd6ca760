#include "journal/journal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "journal/epoch.h"
#include "journal/manifest.h"

namespace lockstep {

namespace {

constexpr size_t kWriteBytes = size_t{1} << 20;
constexpr size_t kForcedCommitBytes = size_t{64} << 20;

bool no_space(int error) { return error == ENOSPC || error == EDQUOT || error == EFBIG; }

std::string describe(const ShardScan& scan, uint64_t late) {
  std::string text;
  if (scan.n_damaged > 0) text += concat(scan.n_damaged, " damaged lines, ");
  if (scan.torn_bytes > 0) text += concat("a torn last line of ", scan.torn_bytes, " bytes, ");
  if (!text.empty()) text += concat("first at byte ", scan.first_damage, ", skipped");
  if (late > 0) text += concat(text.empty() ? "" : "; ", late, " bytes written after the file was sealed, ignored");
  return text;
}

}  // namespace

JournalWriter::JournalWriter(const std::string& out_dir, int64_t epoch, int writer, JournalWriterOptions options)
    : out_dir_(out_dir), name_{epoch, writer, 0}, options_(options) {
  check(epoch >= 1 && writer >= 0, "journal writer ", writer, " of epoch ", epoch);
  open_shard();
}

void JournalWriter::open_shard() {
  path_ = shard_path(out_dir_, name_);
  file_ = open_file(path_, O_WRONLY | O_CREAT | O_EXCL | O_APPEND);
  fsync_directory(journal_path(out_dir_));
  n_written_ = 0;
}

void JournalWriter::append(const JournalEntry& entry) {
  if (broken_) fail(ExitCode::output_io, path_, ": closed after an error");
  append_line(pending_, entry, name_.epoch);
  if (n_pending_++ == 0) first_pending_ = std::chrono::steady_clock::now();
  if (pending_.size() - n_written_ >= kWriteBytes) write_pending();
  if (pending_.size() >= kForcedCommitBytes) commit();
}

void JournalWriter::write_pending() {
  const int error = try_write_all(file_.get(), std::string_view(pending_).substr(n_written_));
  if (error != 0) return move_on("write", error);
  n_written_ = pending_.size();
}

int64_t JournalWriter::commit() {
  if (broken_) fail(ExitCode::output_io, path_, ": closed after an error");
  if (n_pending_ == 0) return n_committed_;
  write_pending();
  if (const int error = try_sync(file_.get()); error != 0) move_on("fdatasync", error);
  // Looked at after the sync: a later job that seals this shard first makes its epoch's file, then reads ours. So either it
  // saw these records or we see the file.
  const std::string later = epoch_path(out_dir_, name_.epoch + 1);
  if (::access(later.c_str(), F_OK) == 0) {
    broken_ = true;
    fail(ExitCode::usage, out_dir_, ": another job took this directory over (", later, " exists)");
  }
  n_committed_ += n_pending_;
  n_pending_ = 0;
  n_written_ = 0;
  pending_.clear();
  return n_committed_;
}

// After a failed write or sync nothing is known of the bytes since the last commit: all of them go into another file.
// Records that are in both count once.
void JournalWriter::move_on(const char* operation, int error) {
  broken_ = true;
  if (no_space(error) || name_.generation > 0) fail_io(path_, operation, error);
  const std::string first = concat(path_, ": ", operation, " failed (errno ", error, "), and then ");
  name_.generation = 1;
  try {
    open_shard();
    write_all(file_.get(), pending_, path_);
    n_written_ = pending_.size();
    if (const int sync_error = try_sync(file_.get()); sync_error != 0) fail_io(path_, "fdatasync", sync_error);
  } catch (const Error& e) {
    throw Error(e.code, first + e.what(), e.where);
  }
  broken_ = false;
}

bool JournalWriter::commit_due() const {
  if (n_pending_ == 0) return false;
  const std::chrono::duration<double> age = std::chrono::steady_clock::now() - first_pending_;
  return pending_.size() >= options_.commit_bytes || n_pending_ >= options_.commit_records || age.count() >= options_.commit_s;
}

int64_t DoneRecords::settle(Prefer prefer) {
  std::sort(entries_.begin(), entries_.end(), [prefer](const Entry& a, const Entry& b) {
    if (a.first != b.first) return a.first < b.first;
    const DoneRecord &x = a.second, &y = b.second;
    if (prefer == Prefer::answered && x.failed != y.failed) return x.failed < y.failed;
    return x.shard != y.shard ? x.shard < y.shard : x.offset < y.offset;
  });
  const size_t n = entries_.size();
  const auto same_id = [](const Entry& a, const Entry& b) { return a.first == b.first; };
  entries_.erase(std::unique(entries_.begin(), entries_.end(), same_id), entries_.end());
  return static_cast<int64_t>(n - entries_.size());
}

DoneRecords::Iterator DoneRecords::find(const Digest& id) const {
  const auto at = std::lower_bound(entries_.begin(), entries_.end(), id,
                                   [](const Entry& entry, const Digest& wanted) { return entry.first < wanted; });
  return at != entries_.end() && at->first == id ? at : entries_.end();
}

const DoneRecord& DoneRecords::at(const Digest& id) const {
  const auto at = find(id);
  check(at != end(), "no record of ", id.hex());
  return at->second;
}

JournalState recover_journal(const std::string& out_dir, Prefer prefer) {
  JournalState state;
  state.out_dir = out_dir;
  if (const auto manifest = read_manifest(out_dir)) state.first_epoch = manifest->first_epoch;
  const EpochSeals seals = read_epochs(out_dir);
  state.last_epoch = std::max(seals.last_epoch, state.first_epoch - 1);

  const std::vector<ShardName> names = list_shards(out_dir);
  for (const ShardName& name : names) {
    state.last_epoch = std::max(state.last_epoch, name.epoch);
    if (name.epoch < state.first_epoch) continue;
    const auto shard = static_cast<uint32_t>(state.shards.size());
    const auto sealed = seals.length_of(name);
    ShardState& s = state.shards.emplace_back(ShardState{name, sealed.has_value(), sealed.value_or(0), 0});

    const std::string path = shard_path(out_dir, name);
    const auto scan = scan_shard(path, name.epoch, 0, sealed.value_or(UINT64_MAX), [&](const ScannedLine& line) {
      state.done.add(line.id, {line.content, line.offset, line.length, shard, line.failed});
    });
    s.valid_end = scan.valid_end;
    state.n_damaged += scan.n_damaged + (scan.torn_bytes > 0 ? 1 : 0);
    struct stat file {};
    const bool known = s.sealed && ::stat(path.c_str(), &file) == 0;
    const auto size = static_cast<uint64_t>(known ? file.st_size : 0);
    if (const std::string text = describe(scan, size > s.sealed_length ? size - s.sealed_length : 0); !text.empty())
      state.notes.push_back(concat(name.file(), ": ", text));
    if (known && size < s.sealed_length)
      state.notes.push_back(concat(name.file(), ": ", s.sealed_length - size, " bytes are missing at its end"));
  }
  for (const auto& [name, length] : seals.lengths)
    if (name.epoch >= state.first_epoch && length > 0 && !std::binary_search(names.begin(), names.end(), name))
      state.notes.push_back(concat(name.file(), ": the file is gone, with ", length, " bytes"));
  state.n_duplicates = state.done.settle(prefer);
  for (const auto& [id, record] : state.done) state.n_failed += record.failed;
  return state;
}

std::string read_record(const JournalState& state, const DoneRecord& record) {
  const ShardName& name = state.shards.at(record.shard).name;
  const std::string path = shard_path(state.out_dir, name);
  const uint64_t n_header = header_bytes(name.epoch);
  check(record.offset >= n_header && record.length <= kMaxRecordBytes, path, ": no record at ", record.offset);
  const FileHandle file = open_file(path, O_RDONLY);
  std::string line(n_header + record.length, '\0');
  line.resize(read_at(file.get(), line.data(), line.size(), record.offset - n_header, path));
  if (!parse_line(line, name.epoch)) fail(ExitCode::output_io, path, ": the record at byte ", record.offset, " is damaged");
  return line.substr(n_header);
}

}  // namespace lockstep
