// Files that are whole or not there, whatever kills the program or the node. Every failure is an Error (output_io) that
// names the path, the operation and the reason. Not for reading input: that is somebody else's file.
//   atomic_write(out + "/run.json", text);              replaces a small file
//   AtomicFile f(path); f.write(part); ... f.commit();  the same, in pieces; without commit() the old file stays
#pragma once

#include <cstdint>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {

// Owner of a file descriptor; closes without looking at the result, so whoever wrote calls close() first.
class FileHandle {
 public:
  FileHandle() = default;
  explicit FileHandle(int fd) : fd_(fd) {}
  FileHandle(FileHandle&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileHandle& operator=(FileHandle&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileHandle() { close(); }
  int get() const { return fd_; }
  int close();  // 0 or errno; network file systems report late write errors here

 private:
  int fd_ = -1;
};

[[noreturn]] void fail_io(const std::string& path, const char* operation, int error,
                          std::source_location where = std::source_location::current());

// open(2) with O_CLOEXEC, repeated when interrupted. The first gives a handle or errno, the second throws.
FileHandle try_open(const std::string& path, int flags, int& error);
FileHandle open_file(const std::string& path, int flags);

// All of it, through short writes and interruptions: 0 or errno. After an error an unknown part is written.
[[nodiscard]] int try_write_all(int fd, std::string_view bytes);
void write_all(int fd, std::string_view bytes, const std::string& path);

// fdatasync, repeated only when interrupted: after any other error the kernel may have dropped the data and call it
// clean, so a second call on the same descriptor would lie. 0 or errno.
[[nodiscard]] int try_sync(int fd);

// Makes created, renamed and removed names durable. File systems that cannot sync a directory are taken at their word.
void fsync_directory(const std::string& path);

// Reads up to `n` bytes at `offset`: fewer only at the end of the file.
size_t read_at(int fd, char* to, size_t n, uint64_t offset, const std::string& path);

// A file of at most `limit` bytes; nullopt where there is none. Throws on a longer one.
std::optional<std::string> read_small_file(const std::string& path, size_t limit = size_t{16} << 20);

// Writes PATH.tmp; commit() syncs, renames it to PATH and syncs the directory. One writer a path at a time.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();  // without commit(): removes PATH.tmp, PATH is as before
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  void write(std::string_view bytes) { write_all(file_.get(), bytes, temporary_); }
  void sync();    // all bytes on disk, name not yet changed: to finish several files before the first is renamed
  void commit();  // syncs if sync() was not called

 private:
  std::string path_, temporary_;
  FileHandle file_;
  bool synced_ = false, renamed_ = false;
  uint64_t device_ = 0, inode_ = 0;
};

void atomic_write(const std::string& path, std::string_view bytes);

// Creates `path` with exactly these bytes; false if the name was taken. Of several callers, on any hosts, one gets true.
// Readers never see a part of it (where the file system has hard links).
bool create_exclusive(const std::string& path, std::string_view bytes);

// The directory part of a path: "a/b" and "a/b/" give "a", "b" gives ".".
std::string parent_of(const std::string& path);

// 16 lower-case hex digits that nobody else has.
std::string random_token();

}  // namespace lockstep
