#include "checkpoint/file.h"

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/utf8.h"

namespace lockstep {

namespace {

constexpr std::string_view kLfsPointer = "version https://git-lfs";

void refuse_lfs_pointer(const File& file) {
  char head[kLfsPointer.size()];
  if (file.size() < sizeof head || file.size() > 1024) return;
  file.read(0, std::as_writable_bytes(std::span(head)));
  if (std::string_view(head, sizeof head) == kLfsPointer) {
    fail(ExitCode::unreadable, file.path(), ": a git-lfs pointer, not the file itself; `git lfs pull` fetches it");
  }
}

}  // namespace

File::File(std::string path) : path_(std::move(path)) {
  int error = 0;
  // O_NONBLOCK: opening a named pipe must not wait for its writer.
  fd_ = try_open(path_, O_RDONLY | O_NONBLOCK, error);
  if (error != 0) fail(ExitCode::unreadable, path_, ": ", std::strerror(error));
  struct stat info;
  if (::fstat(fd_.get(), &info) != 0) fail(ExitCode::unreadable, path_, ": ", std::strerror(errno));
  if (!S_ISREG(info.st_mode)) fail(ExitCode::unreadable, path_, ": not a regular file");
  size_ = static_cast<uint64_t>(info.st_size);
  refuse_lfs_pointer(*this);
}

std::string File::name() const { return base_name(path_); }

void File::read(uint64_t offset, std::span<std::byte> out) const {
  if (offset > size_ || out.size() > size_ - offset) {
    fail(ExitCode::unreadable, path_, ": ", out.size(), " bytes at ", offset, " wanted, the file has ", size_);
  }
  while (!out.empty()) {
    const ssize_t n = ::pread(fd_.get(), out.data(), out.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(ExitCode::unreadable, path_, ": reading at ", offset, ": ", std::strerror(errno));
    if (n == 0)
      fail(ExitCode::unreadable, path_, ": ends at ", offset, " while ", size_, " bytes were there when it was opened");
    out = out.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
}

std::string read_text_file(const std::string& path, uint64_t max_bytes) {
  const File file(path);
  if (file.size() > max_bytes) fail(ExitCode::unreadable, path, ": ", file.size(), " bytes, the limit is ", max_bytes);
  std::string text(file.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  const size_t bad = find_invalid_utf8(text);
  if (bad != std::string::npos) fail(ExitCode::unreadable, path, ": byte ", bad, " is not valid UTF-8");
  return text;
}

bool file_exists(const std::string& path) {
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0;
}

std::string base_name(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

}  // namespace lockstep
