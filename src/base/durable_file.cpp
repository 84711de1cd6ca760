#include "base/durable_file.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"

namespace lockstep {

namespace {

constexpr int kMaxInterruptions = 10000;  // in a row, without a byte of progress: then it is not a signal but a fault

// Repeats a call that a signal interrupted; gives its result with errno as the call left it.
template <class Call>
auto uninterrupted(Call call) {
  auto result = call();
  for (int i = 0; result < 0 && errno == EINTR && i < kMaxInterruptions; ++i) result = call();
  return result;
}

bool same_file(const std::string& path, uint64_t device, uint64_t inode) {
  struct stat s {};
  return ::stat(path.c_str(), &s) == 0 && s.st_dev == device && s.st_ino == inode;
}

}  // namespace

void fail_io(const std::string& path, const char* operation, int error, std::source_location where) {
  throw Error(ExitCode::output_io, concat(path, ": ", operation, ": ", std::strerror(error)), where);
}

int FileHandle::close() {
  if (fd_ < 0) return 0;
  // On Linux the descriptor is gone even when close is interrupted.
  return ::close(std::exchange(fd_, -1)) == 0 || errno == EINTR ? 0 : errno;
}

FileHandle try_open(const std::string& path, int flags, int& error) {
  const int fd = uninterrupted([&] { return ::open(path.c_str(), flags | O_CLOEXEC, 0666); });
  error = fd < 0 ? errno : 0;
  return FileHandle(fd);
}

FileHandle open_file(const std::string& path, int flags) {
  int error = 0;
  FileHandle file = try_open(path, flags, error);
  if (error != 0) fail_io(path, "open", error);
  return file;
}

int try_write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t n_most = std::min<size_t>(bytes.size(), size_t{1} << 30);
    const ssize_t n = uninterrupted([&] { return ::write(fd, bytes.data(), n_most); });
    if (n < 0) return errno;
    if (n == 0) return ENOSPC;  // no progress and no reason given
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return 0;
}

void write_all(int fd, std::string_view bytes, const std::string& path) {
  if (const int error = try_write_all(fd, bytes); error != 0) fail_io(path, "write", error);
}

int try_sync(int fd) {
  return uninterrupted([&] { return ::fdatasync(fd); }) == 0 ? 0 : errno;
}

void fsync_directory(const std::string& path) {
  FileHandle directory = open_file(path, O_RDONLY | O_DIRECTORY);
  if (uninterrupted([&] { return ::fsync(directory.get()); }) == 0) return;
  if (errno == EINVAL || errno == ENOTSUP || errno == EOPNOTSUPP || errno == ENOSYS) return;
  fail_io(path, "fsync", errno);
}

size_t read_at(int fd, char* to, size_t n, uint64_t offset, const std::string& path) {
  size_t n_read = 0;
  while (n_read < n) {
    const ssize_t got =
        uninterrupted([&] { return ::pread(fd, to + n_read, n - n_read, static_cast<off_t>(offset + n_read)); });
    if (got < 0) fail_io(path, "read", errno);
    if (got == 0) break;
    n_read += static_cast<size_t>(got);
  }
  return n_read;
}

std::optional<std::string> read_small_file(const std::string& path, size_t limit) {
  int error = 0;
  const FileHandle file = try_open(path, O_RDONLY, error);
  if (error == ENOENT) return std::nullopt;
  if (error != 0) fail_io(path, "open", error);
  std::string text;
  for (size_t block = 4096;; block *= 2) {
    const size_t begin = text.size();
    text.resize(begin + block);
    const size_t n = read_at(file.get(), text.data() + begin, block, begin, path);
    text.resize(begin + n);
    if (text.size() > limit) fail(ExitCode::output_io, path, ": longer than ", limit, " bytes");
    if (n < block) return text;
  }
}

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)), temporary_(path_ + ".tmp") {
  file_ = open_file(temporary_, O_WRONLY | O_CREAT | O_TRUNC);
  struct stat s {};
  if (::fstat(file_.get(), &s) != 0) fail_io(temporary_, "stat", errno);
  device_ = s.st_dev;
  inode_ = s.st_ino;
}

AtomicFile::~AtomicFile() {
  if (!renamed_) ::unlink(temporary_.c_str());
}

void AtomicFile::sync() {
  if (synced_) return;
  if (uninterrupted([&] { return ::fsync(file_.get()); }) != 0) fail_io(temporary_, "fsync", errno);
  if (const int error = file_.close(); error != 0) fail_io(temporary_, "close", error);
  synced_ = true;
}

void AtomicFile::commit() {
  sync();
  if (uninterrupted([&] { return ::rename(temporary_.c_str(), path_.c_str()); }) != 0) {
    const int error = errno;
    // A network file system may repeat a request whose answer was lost, and then find nothing to rename.
    if (!same_file(path_, device_, inode_)) fail_io(path_, "rename", error);
  }
  renamed_ = true;
  fsync_directory(parent_of(path_));
}

void atomic_write(const std::string& path, std::string_view bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

bool create_exclusive(const std::string& path, std::string_view bytes) {
  const std::string temporary = path + ".new-" + random_token();
  struct Remover {
    explicit Remover(const std::string& path) : path(path) {}
    ~Remover() { ::unlink(path.c_str()); }
    const std::string& path;
  };
  std::optional<Remover> remover(std::in_place, temporary);
  FileHandle file = open_file(temporary, O_WRONLY | O_CREAT | O_EXCL);
  write_all(file.get(), bytes, temporary);
  if (const int error = try_sync(file.get()); error != 0) fail_io(temporary, "fdatasync", error);
  if (uninterrupted([&] { return ::link(temporary.c_str(), path.c_str()); }) != 0) {
    const int error = errno;
    struct stat s {};
    const bool linked = ::fstat(file.get(), &s) == 0 && s.st_nlink == 2;  // done, but the answer was lost on its way
    if (!linked && error == EEXIST) return false;
    if (!linked && (error == EPERM || error == ENOTSUP || error == EOPNOTSUPP || error == ENOSYS)) {  // no hard links here
      int open_error = 0;
      FileHandle direct = try_open(path, O_WRONLY | O_CREAT | O_EXCL, open_error);
      if (open_error == EEXIST) return false;
      if (open_error != 0) fail_io(path, "create", open_error);
      write_all(direct.get(), bytes, path);
      if (const int sync_error = try_sync(direct.get()); sync_error != 0) fail_io(path, "fdatasync", sync_error);
      if (const int close_error = direct.close(); close_error != 0) fail_io(path, "close", close_error);
    } else if (!linked) {
      fail_io(path, "link", error);
    }
  }
  remover.reset();
  fsync_directory(parent_of(path));
  return true;
}

std::string parent_of(const std::string& path) {
  const size_t end = path.find_last_not_of('/');
  const size_t slash = end == std::string::npos ? 0 : path.find_last_of('/', end);
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

std::string random_token() {
  uint64_t words[3] = {};
  if (::getrandom(words, sizeof words[0], GRND_NONBLOCK) != sizeof words[0]) {
    words[1] = static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
    words[2] = static_cast<uint64_t>(::getpid());
  }
  const uint64_t value = hash64({reinterpret_cast<const char*>(words), sizeof words});
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

}  // namespace lockstep
