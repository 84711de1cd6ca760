#include <sched.h>
#include <time.h>

#include <algorithm>

#include "comm/communicator.h"

namespace lockstep {

namespace {

// A poll of MPI takes about 0.1 us, a yield with nobody else to run about 0.5 us: spin for some 5 us, yield for some 2 ms
// (ranks of one group seldom drift further apart), then sleep. The kernel adds its timer slack of 50 us to each sleep.
constexpr int kSpins = 50;
constexpr int kYields = 4000;
constexpr int kMaxSleepUs = 100;

}  // namespace

void relax(int attempt) {
  if (attempt < kSpins) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  } else if (attempt < kSpins + kYields) {
    ::sched_yield();
  } else {
    const int sleep_us = std::min(attempt - kSpins - kYields + 1, kMaxSleepUs);
    const timespec pause{.tv_sec = 0, .tv_nsec = sleep_us * 1000L};
    ::nanosleep(&pause, nullptr);
  }
}

}  // namespace lockstep
