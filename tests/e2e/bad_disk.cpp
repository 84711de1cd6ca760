// Preloaded into the program by the tests of faults: chosen system calls on chosen files wait or fail, and the program is the
// one that users have.
//   BAD_DISK="open:/config.json:wait,write:/journal/e0001:fail=ENOSPC@3" BAD_DISK_MARKS=DIR LD_PRELOAD=libbad_disk.so lockstep
//   ...
// A rule is CALL:PART:ACTION[=VALUE][@N]. CALL: open, read, pread, write, sync, rename, link. PART: of the file's path. N: from
// the N-th such call of the process on (1). Actions:
//   wait        until the file DIR/go exists, once
//   stall=S     for S seconds, once
//   fail=ERRNO  that call and all after it;  once=ERRNO: that call only
//   room=BYTES  writes: ENOSPC when so many bytes are written
//   count       read and pread: DIR/K.PID holds the sum of bytes that came to a process
// BAD_DISK_RANK=R: the rules are for that rank alone.
// The file DIR/K appears when rule K (from 0) acts for the first time.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <string_view>
#include <utility>

namespace {

struct Rule {
  std::string call, part, action;
  double value = 0;
  int error = 0;
  int64_t first = 1;
  std::atomic<int64_t> n_calls{0}, n_bytes{0};
};

constexpr int kMaxRules = 16;
std::array<Rule, kMaxRules> rules;
int n_rules = 0;
std::string marks;

template <class F>
F* next(const char* name) {
  return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}

// The program's own calls, past the rules.
#define REAL(name) static auto* const real = next<decltype(::name)>(#name)

int errno_of(std::string_view name) {
  constexpr std::pair<std::string_view, int> kNames[] = {{"EIO", EIO},       {"ENOSPC", ENOSPC}, {"EDQUOT", EDQUOT},
                                                         {"ESTALE", ESTALE}, {"EROFS", EROFS},   {"EACCES", EACCES}};
  for (const auto& [n, e] : kNames)
    if (n == name) return e;
  return EINVAL;
}

std::string_view take(std::string_view& text, char until) {
  const size_t end = std::min(text.find(until), text.size());
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return part;
}

bool read_rules() {
  const char* text = std::getenv("BAD_DISK");
  const char *only = std::getenv("BAD_DISK_RANK"), *rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (only != nullptr && std::string_view(only) != (rank != nullptr ? rank : "0")) return true;
  const char* directory = std::getenv("BAD_DISK_MARKS");
  marks = directory != nullptr ? directory : "";
  std::string_view rest = text != nullptr ? text : "";
  while (!rest.empty() && n_rules < kMaxRules) {
    std::string_view one = take(rest, ',');
    Rule& rule = rules[n_rules++];
    rule.call = take(one, ':');
    rule.part = take(one, ':');
    std::string_view action = take(one, '@');
    if (!one.empty()) rule.first = std::atoll(std::string(one).c_str());
    rule.action = take(action, '=');
    rule.value = std::atof(std::string(action).c_str());
    rule.error = errno_of(action);
  }
  return true;
}
[[maybe_unused]] const bool ready = read_rules();

void pause_s(double seconds) {
  timespec t{static_cast<time_t>(seconds), static_cast<long>((seconds - static_cast<time_t>(seconds)) * 1e9)};
  while (::nanosleep(&t, &t) != 0 && errno == EINTR) {
  }
}

void mark(int k) {
  REAL(open);
  if (marks.empty()) return;
  const int fd = real(std::string(marks + "/" + std::to_string(k)).c_str(), O_WRONLY | O_CREAT, 0666);
  if (fd >= 0) ::close(fd);
}

// What the rules say of a call on `path` that moves `n` bytes: 0 or an errno.
int judge(std::string_view call, std::string_view path, size_t n = 0) {
  for (int k = 0; k < n_rules; ++k) {
    Rule& rule = rules[k];
    if (rule.action == "count" || rule.call != call || path.find(rule.part) == std::string_view::npos) continue;
    if (rule.action == "room") {
      if (rule.n_bytes.fetch_add(static_cast<int64_t>(n)) + static_cast<int64_t>(n) <= static_cast<int64_t>(rule.value))
        continue;
      mark(k);
      return ENOSPC;
    }
    const int64_t number = ++rule.n_calls;
    if (number < rule.first || (number > rule.first && rule.action != "fail")) continue;
    mark(k);
    if (rule.action == "fail" || rule.action == "once") return rule.error;
    if (rule.action == "stall") pause_s(rule.value);
    for (int i = 0; rule.action == "wait" && i < 3000 && ::access((marks + "/go").c_str(), F_OK) != 0; ++i) pause_s(0.01);
  }
  return 0;
}

std::string path_of(int fd) {
  char path[4096];
  const ssize_t length = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path);
  return {path, static_cast<size_t>(std::max<ssize_t>(length, 0))};
}

int judge(std::string_view call, int fd, size_t n = 0) { return n_rules == 0 ? 0 : judge(call, path_of(fd), n); }

// What came of a call, for the rules that count. The sum is written each time, since a process may be killed at any moment.
ssize_t came(std::string_view call, int fd, ssize_t n) {
  if (n_rules == 0 || n <= 0) return n;
  const std::string path = path_of(fd);
  for (int k = 0; k < n_rules; ++k) {
    Rule& rule = rules[k];
    if (rule.action != "count" || rule.call != call || path.find(rule.part) == std::string::npos) continue;
    const std::string sum = std::to_string(rule.n_bytes += n) + "\n";
    REAL(open);
    const int file =
        real((marks + "/" + std::to_string(k) + "." + std::to_string(::getpid())).c_str(), O_WRONLY | O_CREAT, 0666);
    static auto* const put = next<decltype(::pwrite)>("pwrite");
    if (file >= 0 && put(file, sum.data(), sum.size(), 0) < 0) std::perror("bad_disk");
    ::close(file);
  }
  return n;
}

// Returns from the caller with -1 and errno where the rules say so.
#define OBEY(...)                                    \
  if (const int error = judge(__VA_ARGS__); error) { \
    errno = error;                                   \
    return -1;                                       \
  }

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  REAL(open);
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  OBEY("open", path);
  return real(path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  REAL(open64);
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  OBEY("open", path);
  return real(path, flags, mode);
}
ssize_t read(int fd, void* to, size_t n) {
  REAL(read);
  OBEY("read", fd, n);
  return came("read", fd, real(fd, to, n));
}
ssize_t pread(int fd, void* to, size_t n, off_t at) {
  REAL(pread);
  OBEY("pread", fd, n);
  return came("pread", fd, real(fd, to, n, at));
}
ssize_t pread64(int fd, void* to, size_t n, off64_t at) {
  REAL(pread64);
  OBEY("pread", fd, n);
  return came("pread", fd, real(fd, to, n, at));
}
ssize_t write(int fd, const void* from, size_t n) {
  REAL(write);
  OBEY("write", fd, n);
  return real(fd, from, n);
}
ssize_t writev(int fd, const iovec* parts, int n_parts) {
  REAL(writev);
  OBEY("write", fd);
  return real(fd, parts, n_parts);
}
ssize_t pwrite(int fd, const void* from, size_t n, off_t at) {
  REAL(pwrite);
  OBEY("write", fd, n);
  return real(fd, from, n, at);
}
ssize_t pwrite64(int fd, const void* from, size_t n, off64_t at) {
  REAL(pwrite64);
  OBEY("write", fd, n);
  return real(fd, from, n, at);
}
int fsync(int fd) {
  REAL(fsync);
  OBEY("sync", fd);
  return real(fd);
}
int fdatasync(int fd) {
  REAL(fdatasync);
  OBEY("sync", fd);
  return real(fd);
}
int rename(const char* from, const char* to) noexcept {
  REAL(rename);
  OBEY("rename", to);
  return real(from, to);
}
int link(const char* from, const char* to) noexcept {
  REAL(link);
  OBEY("link", to);
  return real(from, to);
}

}  // extern "C"
