#include "journal/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/signals.h"
#include "journal/json_line.h"
#include "journal/prompt_reader.h"

namespace lockstep {

namespace {

constexpr size_t kBlockBytes = size_t{4} << 20;
constexpr size_t kMaxKept = kMaxLineBytes + 1;  // one byte more than is allowed shows that a line is too long
constexpr std::string_view kSpace = " \t\r\v\f";

using namespace std::string_view_literals;

struct Magic {
  std::string_view bytes, what;
};
constexpr Magic kForeign[] = {
    {"\xFE\xFF"sv, "UTF-16"},
    {"\xFF\xFE"sv, "UTF-16"},
    {"\0\0\xFE\xFF"sv, "UTF-32"},
    {"\x1F\x8B"sv, "gzip"},
    {"\x28\xB5\x2F\xFD"sv, "zstd"},
    {"\xFD"
     "7zXZ\0"sv,
     "xz"},
    {"BZh"sv, "bzip2"},
    {"PK\x03\x04"sv, "zip"},
    {"\x04\x22\x4D\x18"sv, "lz4"},
    {"PAR1"sv, "Parquet"},
    {"GGUF"sv, "GGUF (a model)"},
    {"\x89HDF"sv, "HDF5"},
};

// Nothing that begins like this is UTF-8 text; without a mark UTF-16 shows by a zero beside each ASCII letter.
void refuse_foreign(const std::string& path, std::string_view head) {
  std::string_view what;
  for (const Magic& magic : kForeign)
    if (head.starts_with(magic.bytes)) what = magic.what;
  const std::string_view start = head.substr(0, 4);
  if (what.empty() && start.size() >= 2 && start.find('\0') != std::string_view::npos &&
      start.find_first_not_of('\0') != std::string_view::npos)
    what = "UTF-16 or UTF-32";
  if (!what.empty()) fail(ExitCode::unreadable, path, ": not UTF-8 text but ", what, "; the input is plain UTF-8 JSONL");
}

// Bytes read, fewer than asked for at the end of the file only; -1 with errno.
ssize_t read_some(int fd, char* out, size_t n, uint64_t offset) {
  size_t done = 0;
  while (done < n) {
    const ssize_t got = ::pread(fd, out + done, n - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return -1;
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return static_cast<ssize_t>(done);
}

std::string_view trim_end(std::string_view text) { return text.substr(0, text.find_last_not_of(kSpace) + 1); }

uint64_t content_of(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpace);
  return hash64(begin == std::string_view::npos ? std::string_view() : text.substr(begin));
}

// The file as physical lines, each cut after kMaxKept bytes, from a buffer that holds one block and one line.
class LineReader {
 public:
  LineReader(const std::string& path, int fd) : path_(path), fd_(fd) {}

  struct Line {
    std::string_view text;  // without LF; valid until the next call
    uint64_t offset = 0;
    bool cut = false;
  };
  bool next(Line& line) {
    size_t looked_at = begin_;
    for (;;) {
      const void* lf = std::memchr(buffer_.data() + looked_at, '\n', end_ - looked_at);
      if (lf != nullptr) {
        const auto stop = static_cast<size_t>(static_cast<const char*>(lf) - buffer_.data());
        return take(line, stop, stop + 1);
      }
      if (end_ - begin_ > kMaxKept) return take_cut(line);
      if (at_end_) return end_ > begin_ && take(line, end_, end_);
      looked_at = end_ - begin_;
      fill();  // moves the line to the front
    }
  }

 private:
  bool take(Line& line, size_t stop, size_t next) {
    line.text = std::string_view(buffer_).substr(begin_, std::min(stop - begin_, kMaxKept));
    line.cut = stop - begin_ > kMaxKept;
    line.offset = offset_;
    offset_ += next - begin_;
    begin_ = next;
    return true;
  }

  // A line longer than allowed: keeps its start, passes over the rest.
  bool take_cut(Line& line) {
    cut_.assign(buffer_, begin_, kMaxKept);
    line.text = cut_;
    line.cut = true;
    line.offset = offset_;
    for (;;) {
      const void* lf = std::memchr(buffer_.data() + begin_, '\n', end_ - begin_);
      const size_t next = lf != nullptr ? static_cast<size_t>(static_cast<const char*>(lf) - buffer_.data()) + 1 : end_;
      offset_ += next - begin_;
      begin_ = next;
      if (lf != nullptr || at_end_) return true;
      fill();
    }
  }

  void fill() {
    leave_if_stopped();
    if (begin_ > 0) std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    if (buffer_.size() < end_ + kBlockBytes) buffer_.resize(end_ + kBlockBytes);
    const ssize_t n = read_some(fd_, buffer_.data() + end_, kBlockBytes, read_offset_);
    if (n < 0) fail(ExitCode::unreadable, path_, ": ", std::strerror(errno));
    if (read_offset_ == 0) {
      const std::string_view head = std::string_view(buffer_).substr(0, static_cast<size_t>(n));
      refuse_foreign(path_, head);
      if (head.starts_with("\xEF\xBB\xBF")) begin_ = offset_ = 3;
    }
    end_ += static_cast<size_t>(n);
    read_offset_ += static_cast<uint64_t>(n);
    at_end_ = static_cast<size_t>(n) < kBlockBytes;
  }

  const std::string& path_;
  int fd_;
  std::string buffer_, cut_;
  size_t begin_ = 0, end_ = 0;  // of the bytes not yet given out
  uint64_t offset_ = 0;         // of begin_ in the file
  uint64_t read_offset_ = 0;    // of end_
  bool at_end_ = false;
};

}  // namespace

InputFile InputFile::unscanned(const std::string& path) {
  InputFile file;
  file.path_ = path;
  int error = 0;
  file.file_ = try_open(path, O_RDONLY | O_NONBLOCK, error);  // O_NONBLOCK: a pipe is refused, not waited for
  if (error != 0) fail(ExitCode::unreadable, path, ": ", std::strerror(error));
  struct stat status;
  if (::fstat(file.file_.get(), &status) != 0) fail(ExitCode::unreadable, path, ": ", std::strerror(errno));
  if (!S_ISREG(status.st_mode))
    fail(ExitCode::unreadable, path, ": not a regular file; lines are read more than once, by offset");
  return file;
}

InputFile InputFile::open(const std::string& path, int64_t limit) {
  InputFile file = unscanned(path);
  LineReader reader(file.path_, file.file_.get());
  JsonLine json;
  LineReader::Line physical;
  for (int64_t line = 1; (limit == 0 || static_cast<int64_t>(file.lines_.size()) < limit) && reader.next(physical); ++line) {
    const std::string_view text = physical.cut ? physical.text : trim_end(physical.text);  // a cut one stays too long
    if (text.empty()) continue;
    const PromptOutline outline = outline_prompt(json, text, line);
    file.lines_.push_back({.line = line,
                           .offset = physical.offset,
                           .length = static_cast<uint32_t>(text.size()),
                           .cost = outline.cost,
                           .n_answers = outline.n_answers,
                           .max_tokens = outline.max_tokens,
                           .id = digest128(outline.custom_id),
                           .beginnings = outline.beginnings,
                           .content = content_of(text)});
  }
  file.refuse_duplicates();
  return file;
}

void InputFile::keep_shard(int64_t shard, int64_t n_shards) {
  check(0 <= shard && shard < n_shards, "shard ", shard, " of ", n_shards);
  size_t n_kept = 0;
  for (size_t i = 0; i < lines_.size(); ++i)
    if (static_cast<int64_t>(i + 1) % n_shards == shard) lines_[n_kept++] = lines_[i];
  lines_.resize(n_kept);
  lines_.shrink_to_fit();
}

void InputFile::refuse_duplicates() const {
  constexpr size_t kShown = 5;
  struct Entry {
    Digest id;
    uint64_t index;
    auto operator<=>(const Entry&) const = default;
  };
  std::vector<Entry> entries;
  entries.reserve(lines_.size());
  for (size_t i = 0; i < lines_.size(); ++i) entries.push_back({lines_[i].id, i});
  std::sort(entries.begin(), entries.end());
  std::vector<std::pair<uint64_t, uint64_t>> pairs;  // (second line, line before it with the same id)
  for (size_t i = 1; i < entries.size(); ++i)
    if (entries[i].id == entries[i - 1].id) pairs.emplace_back(entries[i].index, entries[i - 1].index);
  if (pairs.empty()) return;

  std::sort(pairs.begin(), pairs.end());
  JsonLine json;
  std::string message;
  for (size_t i = 0; i < std::min(pairs.size(), kShown); ++i) {
    const InputLine &first = lines_[pairs[i].second], &second = lines_[pairs[i].first];
    const std::string id = outline_prompt(json, read(second), second.line).custom_id;
    message += concat(i == 0 ? "" : ", ", "'", shown(id), "' on lines ", first.line, " and ", second.line);
  }
  if (pairs.size() > kShown) message += concat(", and ", pairs.size() - kShown, " more");
  fail(ExitCode::usage, path_, ": a custom_id may be used once: ", message);
}

std::string InputFile::read(const InputLine& line) const {
  std::string text(line.length, '\0');
  const ssize_t n = read_some(file_.get(), text.data(), text.size(), line.offset);
  if (n < 0) fail(ExitCode::unreadable, path_, ": ", std::strerror(errno));
  check(static_cast<size_t>(n) == text.size() && content_of(text) == line.content, path_, ": line ", line.line,
        ": input changed while running");
  return text;
}

Digest InputFile::digest() const {
  Digester digester;
  for (const InputLine& line : lines_) digester.add({reinterpret_cast<const char*>(&line.content), sizeof line.content});
  return digester.finish();
}

}  // namespace lockstep
