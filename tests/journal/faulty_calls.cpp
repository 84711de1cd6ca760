#include "tests/journal/faulty_calls.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <map>
#include <random>
#include <vector>

#include "base/durable_file.h"

// The names that the linker's --wrap gives: calls go to __wrap_x, the system's own are __real_x.
extern "C" {
int __real_open(const char* path, int flags, ...);
ssize_t __real_write(int fd, const void* bytes, size_t n);
ssize_t __real_pread(int fd, void* bytes, size_t n, off_t offset);
int __real_fsync(int fd);
int __real_fdatasync(int fd);
int __real_rename(const char* from, const char* to);
int __real_link(const char* from, const char* to);
int __real_close(int fd);
int __real_ftruncate(int fd, off_t length);
int __real_unlink(const char* path);
}

namespace lockstep::faulty {

namespace {

Plan plan;
bool armed = false;
std::function<void(const std::string&)> link_hook;
int64_t count = 0;

// ---- what a power loss would leave ----
struct File {
  uint64_t synced = 0;  // bytes that are on disk; more may be in memory
  std::string name;     // below /proc/self/fd, so that it is found whatever its name became
};
struct NameChange {
  enum Kind { made, renamed, removed } kind;
  uint64_t directory;
  std::string path, from, backup;
};
std::map<uint64_t, File> files;   // by inode
std::vector<NameChange> changes;  // of names, not synced, in order
int n_backups = 0;

struct stat stat_of(const std::string& path) {
  struct stat s {};
  if (::lstat(path.c_str(), &s) != 0) s = {};
  return s;
}
uint64_t directory_of(const std::string& path) { return stat_of(parent_of(path)).st_ino; }

bool tracking() { return armed && !plan.backups.empty(); }

std::string back_up(const std::string& path) {
  std::string backup = plan.backups + "/" + std::to_string(n_backups++);
  return __real_link(path.c_str(), backup.c_str()) == 0 ? backup : "";
}

void track_open(const std::string& path, int fd, int flags, bool existed) {
  if ((flags & O_ACCMODE) == O_RDONLY) return;
  struct stat s {};
  ::fstat(fd, &s);
  if (!existed) changes.push_back({NameChange::made, directory_of(path), path, "", ""});
  File& file = files[s.st_ino];
  if (file.name.empty()) file.name = "/proc/self/fd/" + std::to_string(::dup(fd));
  file.synced = static_cast<uint64_t>(s.st_size);
}

void track_sync(int fd) {
  struct stat s {};
  ::fstat(fd, &s);
  if (S_ISDIR(s.st_mode)) {
    std::erase_if(changes, [&](const NameChange& c) { return c.directory == s.st_ino; });
  } else if (const auto file = files.find(s.st_ino); file != files.end()) {
    file->second.synced = static_cast<uint64_t>(s.st_size);
  }
}

void undo(const NameChange& c) {
  switch (c.kind) {
    case NameChange::made:
      __real_unlink(c.path.c_str());
      break;
    case NameChange::renamed:
      __real_rename(c.path.c_str(), c.from.c_str());
      if (!c.backup.empty()) __real_link(c.backup.c_str(), c.path.c_str());
      break;
    case NameChange::removed:
      __real_link(c.backup.c_str(), c.path.c_str());
      break;
  }
}

}  // namespace

// Of each directory's changes a random first part survives; of each file's unsynced bytes all, a first part, or some blocks.
void lose_power() {
  std::mt19937_64 random(plan.seed);
  std::map<uint64_t, std::vector<NameChange>> by_directory;
  for (const NameChange& c : changes) by_directory[c.directory].push_back(c);
  for (auto& [directory, list] : by_directory)
    for (size_t keep = random() % (list.size() + 1); list.size() > keep; list.pop_back()) undo(list.back());
  for (const auto& [inode, file] : files) {
    const int fd = __real_open(file.name.c_str(), O_RDWR);
    if (fd < 0) continue;
    struct stat s {};
    ::fstat(fd, &s);
    const auto size = static_cast<uint64_t>(s.st_size);
    if (size <= file.synced) continue;
    switch (random() % 4) {
      case 0:
        break;
      case 1:
        if (__real_ftruncate(fd, static_cast<off_t>(file.synced + random() % (size - file.synced))) != 0) ::_exit(98);
        break;
      default: {
        const char fill = random() % 2 ? '\0' : '\xA5';
        for (uint64_t at = file.synced; at < size; at += 32)
          for (uint64_t i = at; random() % 2 == 0 && i < std::min(at + 32, size); ++i)
            if (::pwrite(fd, &fill, 1, static_cast<off_t>(i)) != 1) ::_exit(98);
      }
    }
  }
  ::_exit(99);
}

namespace {

// What this call shall do: 0 (as usual), an errno, kShortWrite or kDoneButFailed.
int next_fault() {
  if (!armed) return 0;
  ++count;
  const bool hit = plan.at > 0 && (count == plan.at || (plan.for_ever && count > plan.at));
  if (!hit) return 0;
  if (plan.error == kPowerLoss) lose_power();
  return plan.error;
}

// For all calls but write: -1 with errno where the fault says so.
template <class Call>
auto with_fault(Call call, bool done_anyway = false) -> decltype(call()) {
  const int fault = next_fault();
  if (fault == 0 || fault == kShortWrite || fault == kNoHardLinks) return call();
  if (fault == kDoneButFailed || done_anyway) call();
  errno = fault == kDoneButFailed || fault == kDead ? EIO : fault;
  return -1;
}

}  // namespace

void arm(const Plan& p) {
  plan = p;
  armed = true;
  count = 0;
}
void disarm() { armed = false; }
void before_link(std::function<void(const std::string&)> hook) { link_hook = std::move(hook); }
int64_t n_calls() { return count; }

}  // namespace lockstep::faulty

using namespace lockstep::faulty;

extern "C" {

int __wrap_open(const char* path, int flags, ...) {
  mode_t mode = 0;
  if (flags & O_CREAT) {
    va_list rest;
    va_start(rest, flags);
    mode = va_arg(rest, mode_t);
    va_end(rest);
  }
  const bool existed = tracking() && stat_of(path).st_ino != 0;
  return with_fault([&] {
    const int fd = __real_open(path, flags, mode);
    if (tracking() && fd >= 0) track_open(path, fd, flags, existed);
    return fd;
  });
}

ssize_t __wrap_write(int fd, const void* bytes, size_t n) {
  const int fault = next_fault();
  if (fault == 0 || fault == kNoHardLinks) return __real_write(fd, bytes, n);
  if (fault == kShortWrite) return __real_write(fd, bytes, (n + 1) / 2);
  // A disk that fills up takes a part first.
  if (fault == kDoneButFailed || fault == ENOSPC || fault == EDQUOT)
    (void)!__real_write(fd, bytes, fault == kDoneButFailed ? n : n / 2);
  errno = fault == kDoneButFailed || fault == kDead ? EIO : fault;
  return -1;
}

ssize_t __wrap_pread(int fd, void* bytes, size_t n, off_t offset) {
  return with_fault([&] { return __real_pread(fd, bytes, n, offset); });
}

int __wrap_fsync(int fd) {
  return with_fault([&] {
    if (tracking()) track_sync(fd);
    return __real_fsync(fd);
  });
}

int __wrap_fdatasync(int fd) {
  return with_fault([&] {
    if (tracking()) track_sync(fd);
    return __real_fdatasync(fd);
  });
}

int __wrap_rename(const char* from, const char* to) {
  return with_fault([&] {
    if (tracking()) changes.push_back({NameChange::renamed, directory_of(to), to, from, back_up(to)});
    return __real_rename(from, to);
  });
}

int __wrap_link(const char* from, const char* to) {
  if (const auto hook = link_hook) hook(to);  // a copy: it may replace itself
  if (armed && plan.error == kNoHardLinks) return errno = EPERM, -1;
  return with_fault([&] {
    const int result = __real_link(from, to);
    if (tracking() && result == 0) changes.push_back({NameChange::made, directory_of(to), to, "", ""});
    return result;
  });
}

int __wrap_close(int fd) {
  return with_fault([&] { return __real_close(fd); }, true);
}

int __wrap_ftruncate(int fd, off_t length) {
  return with_fault([&] { return __real_ftruncate(fd, length); });
}

int __wrap_unlink(const char* path) {
  return with_fault([&] {
    std::string backup;
    if (tracking()) backup = back_up(path);
    if (!backup.empty()) changes.push_back({NameChange::removed, directory_of(path), path, "", backup});
    return __real_unlink(path);
  });
}

}  // extern "C"
