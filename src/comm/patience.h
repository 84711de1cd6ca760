// How long a rank waits for a silent peer: LOCKSTEP_COMM_TIMEOUT_S seconds, 0 or unset for ever (the launcher ends the other
// ranks when one dies, so a limit is for debugging and tests).
//   Patience patience; while (!arrived()) if (!patience.wait()) fail(ExitCode::communication, "no word from ", peer);
#pragma once

#include <chrono>

#include "comm/communicator.h"

namespace lockstep {

double comm_timeout_s();  // throws Error (usage) where the variable is no number >= 0

class Patience {
 public:
  explicit Patience(double limit_s) : limit_s_(limit_s) {}

  // Waits a moment; false where nothing has happened for the limit. The clock is looked at once in 64 times.
  bool wait() {
    relax(attempt_);
    if (attempt_ < kAttemptsMax) ++attempt_;
    if (limit_s_ <= 0 || ++since_look_ < 64) return true;
    since_look_ = 0;
    const auto now = std::chrono::steady_clock::now();
    if (!started_) {
      started_ = true;
      start_ = now;
    }
    return std::chrono::duration<double>(now - start_).count() < limit_s_;
  }
  void progress() {  // something happened: the limit starts anew
    attempt_ = 0;
    started_ = false;
  }

 private:
  static constexpr int kAttemptsMax = 1 << 20;

  double limit_s_;
  int attempt_ = 0;
  int since_look_ = 0;
  bool started_ = false;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace lockstep
