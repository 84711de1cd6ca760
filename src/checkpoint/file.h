// A regular file open for reading by pread: no mapping, so that a file cut by somebody else is an error and not a signal.
// Not for: writing, pipes. Refuses git-lfs pointers, which stand in for files that were never downloaded.
//   File f(path); f.read(offset, bytes);
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/durable_file.h"

namespace lockstep {

class File {
 public:
  explicit File(std::string path);  // throws Error (unreadable)

  const std::string& path() const { return path_; }
  std::string name() const;  // base name
  uint64_t size() const { return size_; }

  // Fills `out` from `offset` or throws Error (unreadable). Thread-safe.
  void read(uint64_t offset, std::span<std::byte> out) const;

 private:
  std::string path_;
  FileHandle fd_;
  uint64_t size_ = 0;
};

// How a reader of weights gets bytes of a file: `n` of them from `offset`, there until the next call. Throws as File::read.
using FetchBytes = std::function<const std::byte*(const File& file, uint64_t offset, size_t n)>;

// The whole file, refused when larger than `max_bytes` or when it is not valid UTF-8.
std::string read_text_file(const std::string& path, uint64_t max_bytes);

bool file_exists(const std::string& path);  // anything of that name, also what cannot be read

std::string base_name(const std::string& path);

}  // namespace lockstep
