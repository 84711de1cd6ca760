// System calls that fail on demand, for programs linked with --wrap: open, write, pread, fsync, fdatasync, rename, link,
// close, ftruncate, unlink, as called by our own code. And a model of what a power loss leaves of a directory.
//   arm({.at = 17, .error = EIO});  run();  disarm();       the 17th call fails
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace lockstep::faulty {

inline constexpr int kShortWrite = 1001;     // half of the bytes are written, and the call says so
inline constexpr int kDoneButFailed = 1002;  // the work is done, but the answer is EIO: a lost reply of a file server
inline constexpr int kNoHardLinks = 1003;    // link() gives EPERM
inline constexpr int kPowerLoss = 1004;      // the machine ends here: what was not synced is lost at random; _exit(99)
inline constexpr int kDead = 1005;           // nothing has an effect any more, as if the process had been killed

struct Plan {
  int64_t at = 0;  // number of the call, from 1; 0: never
  int error = 0;   // errno, or one of the above
  bool for_ever = false;
  uint64_t seed = 0;         // of the power loss
  std::string backups = {};  // of the power loss: an empty directory on the same file system
};

// Starts counting from 0. What is known of synced and unsynced data stays from plan to plan.
void arm(const Plan& plan);
void disarm();
int64_t n_calls();

// The power loss of the armed plan, now.
[[noreturn]] void lose_power();

// Called with the new name before each link(), armed or not: what another process does at that moment.
void before_link(std::function<void(const std::string&)> hook);

}  // namespace lockstep::faulty
