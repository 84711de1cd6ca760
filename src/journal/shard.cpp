#include "journal/shard.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/durable_file.h"
#include "base/error.h"
#include "base/signals.h"

namespace lockstep {

namespace {

constexpr size_t kBlockBytes = size_t{1} << 20;
constexpr size_t kCrcBytes = 9;         // 8 digits and a blank
constexpr size_t kMaxHeaderBytes = 80;  // 9 + "o " 2 + id 33 + content 17 + epoch of up to 18 digits and a blank

// Lower-case hex of exactly N digits.
template <class T>
bool parse_hex(std::string_view digits, T& value) {
  value = 0;
  for (const char c : digits) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return false;
    value = static_cast<T>(value << 4 | static_cast<T>(digit));
  }
  return true;
}

void append_hex(std::string& to, uint64_t value, int n_digits) {
  for (int i = n_digits - 1; i >= 0; --i) to += "0123456789abcdef"[value >> (4 * i) & 15];
}

// Decimal without sign or leading zeros, at most 18 digits, from the front of `text`; what it was is removed.
bool take_decimal(std::string_view& text, int64_t& value, bool leading_zeros) {
  size_t n = 0;
  value = 0;
  while (n < text.size() && n < 18 && text[n] >= '0' && text[n] <= '9') value = value * 10 + (text[n++] - '0');
  if (n == 0 || (!leading_zeros && n > 1 && text[0] == '0')) return false;
  text.remove_prefix(n);
  return true;
}

struct Header {
  uint32_t crc = 0;
  ScannedLine line;  // offset and length not yet
  size_t bytes = 0;
};

// `head`: the first bytes of a line, at least kMaxHeaderBytes of them or all it has.
bool parse_header(std::string_view head, int64_t epoch, Header& h) {
  if (head.size() < kCrcBytes + 2 + 33 + 17 + 2 || head[8] != ' ' || head[10] != ' ' || head[43] != ' ' || head[60] != ' ')
    return false;
  if (!parse_hex(head.substr(0, 8), h.crc) || !parse_hex(head.substr(11, 16), h.line.id.high) ||
      !parse_hex(head.substr(27, 16), h.line.id.low) || !parse_hex(head.substr(44, 16), h.line.content))
    return false;
  if (head[9] != 'o' && head[9] != 'e') return false;
  h.line.failed = head[9] == 'e';
  std::string_view rest = head.substr(61);
  int64_t written = 0;
  if (!take_decimal(rest, written, false) || written != epoch || rest.empty() || rest[0] != ' ') return false;
  h.bytes = head.size() - rest.size() + 1;
  return true;
}

// Follows one line through the blocks: keeps its first bytes and its CRC, not the line.
class LineReader {
 public:
  LineReader(int64_t epoch, uint64_t offset) : epoch_(epoch), begin_(offset) {}

  void add(std::string_view part) {
    const size_t n = std::min(part.size(), kMaxHeaderBytes - std::min(kMaxHeaderBytes, head_.size()));
    head_.append(part.substr(0, n));
    const uint64_t n_before_crc = std::min<uint64_t>(part.size(), length_ < kCrcBytes ? kCrcBytes - length_ : 0);
    crc_ = crc32c(part.substr(n_before_crc), crc_);
    length_ += part.size();
  }

  std::optional<ScannedLine> finish() const {
    Header h;
    if (!parse_header(head_, epoch_, h) || h.crc != crc_ || h.bytes >= length_ || length_ - h.bytes > kMaxRecordBytes)
      return std::nullopt;
    h.line.offset = begin_ + h.bytes;
    h.line.length = static_cast<uint32_t>(length_ - h.bytes);
    return h.line;
  }

  void restart(uint64_t offset) {
    head_.clear();
    crc_ = 0;
    length_ = 0;
    begin_ = offset;
  }
  uint64_t begin() const { return begin_; }
  uint64_t length() const { return length_; }

 private:
  int64_t epoch_;
  uint64_t begin_;
  std::string head_;  // at most kMaxHeaderBytes
  uint32_t crc_ = 0;
  uint64_t length_ = 0;
};

}  // namespace

std::string ShardName::file() const {
  char text[64];
  std::snprintf(text, sizeof text, "e%04lld-w%03d%s.jsonl", static_cast<long long>(epoch), writer, generation ? "b" : "");
  return text;
}

std::optional<ShardName> parse_shard_name(std::string_view file) {
  ShardName name;
  std::string_view rest = file;
  int64_t writer = 0;
  if (!rest.starts_with('e')) return std::nullopt;
  rest.remove_prefix(1);
  if (!take_decimal(rest, name.epoch, true) || !rest.starts_with("-w")) return std::nullopt;
  rest.remove_prefix(2);
  if (!take_decimal(rest, writer, true) || writer > INT32_MAX) return std::nullopt;
  name.writer = static_cast<int32_t>(writer);
  if (rest.starts_with('b')) {
    name.generation = 1;
    rest.remove_prefix(1);
  }
  if (rest != ".jsonl" || name.file() != file) return std::nullopt;
  return name;
}

std::string journal_path(const std::string& out_dir) { return out_dir + "/journal"; }

std::string shard_path(const std::string& out_dir, const ShardName& name) { return journal_path(out_dir) + "/" + name.file(); }

std::vector<ShardName> list_shards(const std::string& out_dir) {
  std::vector<ShardName> names;
  std::error_code error;
  const std::string path = journal_path(out_dir);
  std::filesystem::directory_iterator entry(path, error);
  if (error == std::errc::no_such_file_or_directory) return names;
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error))
    if (const auto name = parse_shard_name(entry->path().filename().string())) names.push_back(*name);
  if (error) fail_io(path, "list", error.value());
  std::sort(names.begin(), names.end());
  return names;
}

uint64_t header_bytes(int64_t epoch) { return 61 + std::to_string(epoch).size() + 1; }

void append_line(std::string& to, const JournalEntry& entry, int64_t epoch) {
  check(!entry.record.empty() && entry.record.size() <= kMaxRecordBytes, "a record of ", entry.record.size(), " bytes");
  check(entry.record.find('\n') == std::string::npos, "a record with a line feed in it");
  const size_t begin = to.size();
  to += entry.failed ? "00000000 e " : "00000000 o ";
  to += entry.id.hex();
  to += ' ';
  append_hex(to, entry.content, 16);
  to += ' ';
  to += std::to_string(epoch);
  to += ' ';
  to += entry.record;
  std::string crc;
  append_hex(crc, crc32c(std::string_view(to).substr(begin + kCrcBytes)), 8);
  to.replace(begin, 8, crc);
  to.push_back('\n');
}

std::optional<ScannedLine> parse_line(std::string_view bytes, int64_t epoch) {
  LineReader line(epoch, 0);
  line.add(bytes);
  return line.finish();
}

ShardScan scan_shard(const std::string& path, int64_t epoch, uint64_t from, uint64_t limit,
                     const std::function<void(const ScannedLine&)>& found) {
  const FileHandle file = open_file(path, O_RDONLY);
  ShardScan scan;
  scan.valid_end = from;
  uint64_t at = from;
  const auto damage = [&](uint64_t offset) {
    if (scan.n_damaged == 0 && scan.torn_bytes == 0) scan.first_damage = offset;
  };
  LineReader line(epoch, from);
  std::vector<char> block(std::min<uint64_t>(kBlockBytes, limit > from ? limit - from : 0));
  while (at < limit) {
    leave_if_stopped(kStopPatience_s);
    const size_t n = read_at(file.get(), block.data(), std::min<uint64_t>(block.size(), limit - at), at, path);
    if (n == 0) break;
    std::string_view rest(block.data(), n);
    for (size_t feed; (feed = rest.find('\n')) != std::string_view::npos; rest.remove_prefix(feed + 1)) {
      line.add(rest.substr(0, feed));
      const uint64_t end = line.begin() + line.length() + 1;
      if (const auto good = line.finish()) {
        found(*good);
        scan.valid_end = end;
        ++scan.n_lines;
      } else {
        damage(line.begin());
        ++scan.n_damaged;
      }
      line.restart(end);
    }
    line.add(rest);
    at += n;
  }
  if (line.length() > 0) {
    damage(line.begin());
    scan.torn_bytes = line.length();
  }
  scan.size = std::max(at, from);
  return scan;
}

}  // namespace lockstep
