// One job a directory: OUT/journal/lock says who, and its modification time shows a heartbeat. Works without flock, which
// network file systems may lack. A guard against mistakes; that results stay right where it fails is epoch.h's work.
//   DirectoryLock lock(out_dir, {.takeover = o.takeover});   while working: lock.heartbeat();
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace lockstep {

struct DirectoryLockOptions {
  bool takeover = false;  // from a holder on another host, without waiting until it counts as dead
  double heartbeat_s = 30;
  double dead_after_s = 300;  // a holder on another host that was silent for so long is dead
};

struct LockHolder {
  std::string host;
  int64_t pid = 0;
  uint64_t process_start = 0;  // clock ticks since boot (/proc/PID/stat): a reused pid has another
  std::string machine;         // boot id and pid namespace: where a pid means the same process
  std::string since;           // UTC
  std::string token;           // of this acquisition
};

class DirectoryLock {
 public:
  // Error (usage) names the holder: host, pid, since when. A holder whose process is gone from this machine is replaced.
  explicit DirectoryLock(const std::string& out_dir, DirectoryLockOptions options = {});
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

  // Call it often; it acts every heartbeat_s. Error (usage) when another job took the directory over.
  void heartbeat();

  // Whose lock was replaced, for the log; empty: nobody's.
  const std::string& replaced() const { return replaced_; }

 private:
  bool try_acquire();
  void release();
  std::string claim_path(const std::string& token) const;

  std::string path_;
  DirectoryLockOptions options_;
  LockHolder self_;
  std::string text_;  // what the lock file holds while it is ours
  std::string replaced_;
  bool held_ = false;
  std::chrono::steady_clock::time_point last_beat_;
};

}  // namespace lockstep
