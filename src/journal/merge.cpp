#include "journal/merge.h"

#include <fcntl.h>

#include <algorithm>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/durable_file.h"
#include "base/error.h"
#include "base/signals.h"
#include "journal/output_record.h"

namespace lockstep {

namespace {

// Records lie in the shards in order of completion, and go out in order of input. So a window of input lines at a time: its
// records are read in order of their place, neighbours in one read, and written in order of the lines.
constexpr uint64_t kWindowBytesPerLine = 16;  // of the input: the memory of a window beside that of the lines
constexpr uint64_t kMinWindowBytes = uint64_t{1} << 20, kMaxWindowBytes = uint64_t{64} << 20;
constexpr size_t kMaxWindowLines = size_t{1} << 18;
constexpr uint64_t kReadBytes = uint64_t{1} << 20;  // at most in one read, unless one record is longer
constexpr uint64_t kGapBytes = uint64_t{16} << 10;  // unwanted bytes worth reading over; bounds what a record costs
constexpr size_t kWriteBytes = size_t{1} << 20;

struct Wanted {
  const InputLine* line = nullptr;
  const DoneRecord* done = nullptr;
  uint32_t state = 0;  // index into states
  uint64_t at = 0;     // of the record in the window's bytes
};

// The file's line of a record: header, record, no line feed.
struct Span {
  uint64_t begin, end;
};
Span span_of(const JournalState& state, const DoneRecord& done) {
  return {done.offset - header_bytes(state.shards[done.shard].name.epoch), done.offset + done.length};
}

// Fills `bytes` with the records of the window, each at its `at`, checking each line once more.
void read_window(std::span<const JournalState> states, std::span<const Wanted> window, std::string& bytes) {
  std::vector<const Wanted*> order;
  order.reserve(window.size());
  for (const Wanted& w : window) order.push_back(&w);
  std::ranges::sort(order, {}, [](const Wanted* w) { return std::tuple(w->state, w->done->shard, w->done->offset); });

  std::string block;
  for (size_t i = 0; i < order.size();) {
    const JournalState& state = states[order[i]->state];
    const uint32_t shard = order[i]->done->shard;
    const ShardName& name = state.shards[shard].name;
    const std::string path = shard_path(state.out_dir, name);
    const FileHandle file = open_file(path, O_RDONLY);
    const auto in_shard = [&](size_t k) {
      return k < order.size() && order[k]->state == order[i]->state && order[k]->done->shard == shard;
    };
    size_t end_of_shard = i;
    while (in_shard(end_of_shard)) ++end_of_shard;
    while (i < end_of_shard) {
      Span read = span_of(state, *order[i]->done);
      size_t n = i + 1;
      for (; n < end_of_shard; ++n) {
        const Span next = span_of(state, *order[n]->done);
        if (next.begin > read.end + kGapBytes || next.end - read.begin > kReadBytes) break;
        read.end = std::max(read.end, next.end);
      }
      block.resize(read.end - read.begin);
      block.resize(read_at(file.get(), block.data(), block.size(), read.begin, path));
      for (; i < n; ++i) {
        const Wanted& w = *order[i];
        const Span span = span_of(state, *w.done);
        const std::string_view have(block);
        const auto line = span.end - read.begin <= have.size() ? have.substr(span.begin - read.begin, span.end - span.begin)
                                                               : std::string_view();
        const auto good = parse_line(line, name.epoch);
        if (!good || good->id != w.line->id)
          fail(ExitCode::output_io, path, ": the record at byte ", w.done->offset, " is no longer what was recovered");
        bytes.replace(w.at, w.done->length, line.substr(good->offset));
      }
    }
  }
}

class Output {
 public:
  explicit Output(const std::string& path) : file_(path) {}
  void add(std::string_view record) {
    pending_.append(record);
    pending_.push_back('\n');
    if (pending_.size() >= kWriteBytes) flush();
  }
  void flush() {
    file_.write(pending_);
    digester_.add(pending_);
    bytes_ += pending_.size();
    pending_.clear();
  }
  AtomicFile& file() { return file_; }
  uint64_t bytes() const { return bytes_; }
  Digest digest() const { return digester_.finish(); }

 private:
  AtomicFile file_;
  std::string pending_;
  Digester digester_;
  uint64_t bytes_ = 0;
};

// Where the record of a line is, among several journals.
class Finder {
 public:
  Finder(std::span<const JournalState> states, bool disjoint) : states_(states), disjoint_(disjoint) {}

  Wanted find(const InputLine& line) {
    Wanted best{&line};
    for (uint32_t i = 0; i < states_.size(); ++i) {
      const uint32_t s = disjoint_ ? static_cast<uint32_t>((next_ + i) % states_.size()) : i;
      const auto at = states_[s].done.find(line.id);
      if (at == states_[s].done.end()) continue;
      if (best.done == nullptr || (best.done->failed && !at->second.failed)) best = {&line, &at->second, s, 0};
      if (disjoint_) break;
    }
    if (best.done != nullptr) next_ = best.state + 1;
    return best;
  }

 private:
  std::span<const JournalState> states_;
  bool disjoint_;
  uint32_t next_ = 0;  // after the one that had the last line: shards take turns
};

}  // namespace

MergeResult merge_outputs(const std::string& out_dir, std::span<const InputLine> lines, const JournalState& state,
                          bool partial) {
  return merge_outputs(out_dir, lines, std::span(&state, 1), partial, true);
}

MergeResult merge_outputs(const std::string& out_dir, std::span<const InputLine> lines, std::span<const JournalState> states,
                          bool partial, bool disjoint) {
  MergeResult result;
  result.n_lines = static_cast<int64_t>(lines.size());
  Output completions(out_dir + "/completions.jsonl");
  Output errors(out_dir + "/errors.jsonl");

  const uint64_t window_bytes = std::clamp(lines.size() * kWindowBytesPerLine, kMinWindowBytes, kMaxWindowBytes);
  Finder finder(states, disjoint);
  int64_t n_written = 0;
  std::vector<Wanted> window;
  std::string bytes;
  const auto write_window = [&] {
    leave_if_stopped(kStopPatience_s);
    read_window(states, window, bytes);
    for (const Wanted& w : window) {
      const std::string_view record = std::string_view(bytes).substr(w.at, w.done->length);
      ++n_written;
      if (w.done->failed) {
        const std::string at_line = error_record_at_line(record, w.line->line);
        completions.add(at_line);
        errors.add(at_line);
        ++result.n_failed;
      } else {
        completions.add(record);
        ++result.n_answered;
      }
    }
    window.clear();
    bytes.clear();
  };
  for (const InputLine& line : lines) {
    Wanted wanted = finder.find(line);
    if (wanted.done == nullptr) {
      ++result.n_missing;
      if (partial) continue;
      fail(ExitCode::output_io, out_dir, ": input line ", line.line, " has no record; the run is not finished");
    }
    if (wanted.done->content != line.content)
      fail(ExitCode::output_io, out_dir, ": the record of input line ", line.line, " is for another content of that line");
    if (!window.empty() && (bytes.size() + wanted.done->length > window_bytes || window.size() >= kMaxWindowLines))
      write_window();
    wanted.at = bytes.size();
    bytes.resize(bytes.size() + wanted.done->length);
    window.push_back(wanted);
  }
  write_window();
  completions.flush();
  errors.flush();
  check(n_written + result.n_missing == result.n_lines, out_dir, ": ", result.n_lines, " lines in, ", n_written,
        " records out");
  result.bytes = completions.bytes();
  result.digest = completions.digest();

  // Both are on disk before either gets its name; completions.jsonl comes last, so that where it is, the other is too.
  errors.file().sync();
  completions.file().sync();
  leave_if_stopped(kStopPatience_s);
  errors.file().commit();
  completions.file().commit();
  return result;
}

}  // namespace lockstep
