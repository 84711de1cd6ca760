#include "journal/directory_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <vector>

#include "base/durable_file.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/utf8.h"

namespace lockstep {

namespace {

// How a lock changes hands without a moment in which two could take it: the lock file is only ever made by link(), or
// replaced by the one process that made `lock.after-TOKEN`, TOKEN being that of the holder it succeeds. A claim whose maker
// died is succeeded in the same way, so that lock, its claim, that one's claim ... is a chain and the last one is the holder.
constexpr int kMaxChain = 100;
constexpr int kMaxAttempts = 100;

std::string first_line_of(const std::string& path) {
  std::string text;
  try {
    text = read_small_file(path, 65536).value_or("");
  } catch (const Error&) {  // not readable: as if it were not there
  }
  return text.substr(0, text.find('\n'));
}

struct ProcessStat {
  char state = 0;
  uint64_t start = 0;
};

// nullopt: no such process (or no /proc).
std::optional<ProcessStat> process_stat(int64_t pid) {
  const std::string line = first_line_of("/proc/" + std::to_string(pid) + "/stat");
  const size_t name_end = line.rfind(')');  // the name may hold blanks and brackets
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream rest(line.substr(name_end + 1));
  ProcessStat stat;
  rest >> stat.state;
  std::string skipped;
  for (int field = 4; field < 22; ++field) rest >> skipped;
  rest >> stat.start;
  if (!rest) return std::nullopt;
  return stat;
}

std::string machine_of_this_process() {
  const std::string boot = first_line_of("/proc/sys/kernel/random/boot_id");
  char space[64] = {};
  const ssize_t n = ::readlink("/proc/self/ns/pid", space, sizeof space - 1);
  return boot.empty() || n <= 0 ? "" : boot + " " + space;
}

LockHolder this_process() {
  LockHolder self;
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  self.host = lossy_utf8(host);
  self.pid = ::getpid();
  if (const auto stat = process_stat(self.pid)) self.process_start = stat->start;
  self.machine = machine_of_this_process();
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  char text[32] = {};
  if (::gmtime_r(&now, &utc) != nullptr) std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  self.since = text;
  self.token = random_token();
  return self;
}

std::string to_text(const LockHolder& h) {
  return nlohmann::ordered_json{{"host", h.host},       {"pid", h.pid},     {"process_start", h.process_start},
                                {"machine", h.machine}, {"since", h.since}, {"token", h.token}}
             .dump() +
         "\n";
}

bool is_token(const std::string& text) {
  return text.size() == 16 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// What cannot be read is a holder nobody knows, with a token of its own.
LockHolder parse_holder(const std::string& text) {
  LockHolder holder;
  try {
    const auto json = nlohmann::json::parse(text);
    holder = {json.at("host"),    json.at("pid"),   json.at("process_start"),
              json.at("machine"), json.at("since"), json.at("token")};
  } catch (const nlohmann::json::exception&) {
    holder = {"an unknown host", 0, 0, "", "an unknown time", ""};
  }
  if (!is_token(holder.token)) holder.token = digest128(text).hex().substr(0, 16);
  return holder;
}

// Seconds since the file's modification, by the file system's own clock where it can be asked.
double silence_s(const std::string& path) {
  struct stat lock {
  }, probe{};
  if (::stat(path.c_str(), &lock) != 0) return 0;
  const std::string probe_path = path + ".now-" + random_token();
  int error = 0;
  const FileHandle file = try_open(probe_path, O_WRONLY | O_CREAT | O_EXCL, error);
  const bool asked = error == 0 && ::fstat(file.get(), &probe) == 0;
  if (error == 0) ::unlink(probe_path.c_str());
  const auto seconds = [](const timespec& t) { return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec); };
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return seconds(asked ? probe.st_mtim : now) - seconds(lock.st_mtim);
}

}  // namespace

DirectoryLock::DirectoryLock(const std::string& out_dir, DirectoryLockOptions options)
    : path_(out_dir + "/journal/lock"), options_(options), self_(this_process()), text_(to_text(self_)) {
  int attempts = 0;
  try {
    while (!try_acquire())
      if (++attempts >= kMaxAttempts) fail(ExitCode::usage, path_, ": changes hands too fast to be taken");
  } catch (...) {
    release();  // an error after the name was made
    throw;
  }
  held_ = true;
  last_beat_ = std::chrono::steady_clock::now();
}

DirectoryLock::~DirectoryLock() {
  if (held_) release();
}

std::string DirectoryLock::claim_path(const std::string& token) const { return path_ + ".after-" + token; }

// False: something changed meanwhile, look again.
bool DirectoryLock::try_acquire() {
  if (create_exclusive(path_, text_)) return true;
  const auto root = read_small_file(path_);
  if (!root) return false;
  LockHolder holder = parse_holder(*root);
  std::string holder_path = path_;
  std::vector<std::string> claims;
  for (;;) {
    const std::string next = claim_path(holder.token);
    const auto text = read_small_file(next);
    if (!text) break;
    if (claims.size() >= kMaxChain)
      fail(ExitCode::usage, path_, ": too many claims beside it; remove them if no job runs here");
    claims.push_back(next);
    holder_path = next;
    holder = parse_holder(*text);
  }

  const bool same_machine = !holder.machine.empty() && holder.machine == self_.machine;
  if (same_machine) {
    const auto process = process_stat(holder.pid);
    const bool runs = process && process->start == holder.process_start && process->state != 'Z' && process->state != 'X';
    if (runs)
      fail(ExitCode::usage, path_, ": in use by process ", holder.pid, " on this host (", holder.host, ") since ", holder.since,
           "; wait for it or stop it");
  } else if (const double silent_s = silence_s(holder_path); !options_.takeover && silent_s < options_.dead_after_s) {
    fail(ExitCode::usage, path_, ": in use by process ", holder.pid, " on ", holder.host, " since ", holder.since,
         ", last heard of ", static_cast<int64_t>(silent_s), " s ago; counts as dead after ",
         static_cast<int64_t>(options_.dead_after_s), " s of silence, --takeover takes it at once");
  }

  const std::string claim = claim_path(holder.token);
  LockHolder claimant = self_;
  claimant.token = random_token();
  if (!create_exclusive(claim, to_text(claimant))) return false;
  claims.push_back(claim);
  if (read_small_file(path_) != root) {  // someone finished before our claim was there
    ::unlink(claim.c_str());
    return false;
  }
  try {
    atomic_write(path_, text_);
  } catch (...) {
    if (first_line_of(path_) + "\n" != text_) ::unlink(claim.c_str());
    throw;
  }
  for (const std::string& path : claims) ::unlink(path.c_str());
  replaced_ = concat("process ", holder.pid, " on ", holder.host, ", since ", holder.since);
  return true;
}

void DirectoryLock::heartbeat() {
  const auto now = std::chrono::steady_clock::now();
  if (std::chrono::duration<double>(now - last_beat_).count() < options_.heartbeat_s) return;
  last_beat_ = now;
  std::optional<std::string> text;
  try {
    text = read_small_file(path_);
    if (!text) {  // removed by hand
      create_exclusive(path_, text_);
      text = read_small_file(path_);
    }
  } catch (const Error&) {
    return;  // the file system has a bad moment: the next beat tells
  }
  if (text && *text != text_) {
    held_ = false;
    const LockHolder holder = parse_holder(*text);
    fail(ExitCode::usage, path_, ": taken over by process ", holder.pid, " on ", holder.host, " at ", holder.since);
  }
  ::utimensat(AT_FDCWD, path_.c_str(), nullptr, 0);
}

// Claims its own succession, so that nobody replaces the lock between the look and the removal; on a full disk it goes without
// a claim, since a job on another host would have to wait for it. No throw: a lock that stays is found stale by the next job.
void DirectoryLock::release() {
  const std::string claim = claim_path(self_.token);
  const auto is_ours = [&] { return read_small_file(path_) == text_; };
  bool claimed = false;
  try {
    if (!is_ours()) return;
    LockHolder claimant = self_;
    claimant.token = random_token();
    try {
      claimed = create_exclusive(claim, to_text(claimant));
      if (!claimed) return;
    } catch (const Error&) {
    }
    if (is_ours()) ::unlink(path_.c_str());
  } catch (const Error&) {
  }
  if (claimed) ::unlink(claim.c_str());
}

}  // namespace lockstep
