// The input: a JSONL file, scanned once from front to back, then read line by line wherever it is wanted. Knows where lines
// are and who they are, not what they ask for (prompt_reader). Faulty lines are lines like others.
//   const InputFile input = InputFile::open("prompts.jsonl", 0);   for (const InputLine& l : input.lines()) input.read(l);
//
// Only LF ends a line. A byte order mark at the start, CRLF, blank lines and a missing last LF are fine; `line` counts
// physical lines. Of a line longer than 16 MiB only the first 16 MiB and a byte are looked at: it is a fault of that line.
// A scan takes 72 bytes a line, and 24 more while it looks for duplicates.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/durable_file.h"
#include "base/hash.h"

namespace lockstep {

// Hashes of the first 64, 256, 1024 and 4096 bytes of a prompt, or of all it has: lines that agree in the first k of them begin
// alike. For the order of work alone: a collision does no harm.
using Beginnings = std::array<uint32_t, 4>;

struct InputLine {
  int64_t line = 0;         // 1-based, of the file
  uint64_t offset = 0;      // of its first byte
  uint32_t length = 0;      // bytes, without trailing white space
  uint32_t cost = 0;        // about how many tokens, prompt and answer (prompt_reader.h): for longest-first
  uint32_t n_answers = 0;   // sequences that it asks for: its prompts times n
  uint32_t max_tokens = 0;  // of each of them
  Digest id;                // digest128 of custom_id
  Beginnings beginnings{};
  uint64_t content = 0;  // hash64 of the line without surrounding white space: a line that moves keeps it
};

class InputFile {
 public:
  // The first `limit` requests (0: all); nothing after them is read. Throws Error: unreadable (missing, not a regular file,
  // UTF-16, compressed), usage (two lines with one custom_id, with id and line numbers).
  static InputFile open(const std::string& path, int64_t limit);

  // Not scanned: lines() is empty, and read() takes lines that another process's scan found.
  static InputFile unscanned(const std::string& path);

  // Keeps the requests of one shard, as if there were no others: of those counted 1, 2, 3, ... every number whose remainder
  // by n_shards is `shard`. Duplicates were looked for in all of them.
  void keep_shard(int64_t shard, int64_t n_shards);

  const std::vector<InputLine>& lines() const { return lines_; }  // in file order, blank lines left out
  const std::string& path() const { return path_; }

  // The bytes of a line. Throws Error (other) if they are not those that were scanned. Safe from several threads.
  std::string read(const InputLine& line) const;

  // Of the content of the lines kept, in their order.
  Digest digest() const;

 private:
  InputFile() = default;
  void refuse_duplicates() const;

  std::string path_;
  FileHandle file_;
  std::vector<InputLine> lines_;
};

}  // namespace lockstep
