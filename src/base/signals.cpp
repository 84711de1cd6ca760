#include "base/signals.h"

#include <csignal>
#include <ctime>

#include <atomic>
#include <cstdint>
#include <initializer_list>

#include "base/error.h"

namespace lockstep {

namespace {

// One request may come twice, straight from the batch system and forwarded by mpirun; what follows within this time is its
// echo.
constexpr int64_t kEchoNs = 200'000'000;

std::atomic<int> first_signal{0};
std::atomic<int64_t> first_ns{0};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free);

int64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

extern "C" void on_stop_signal(int number) {
  if (first_signal.load() == 0) {
    first_ns.store(now_ns());
    first_signal.store(number);
    return;
  }
  if (number == first_signal.load() && now_ns() - first_ns.load() < kEchoNs) return;
  ::signal(number, SIG_DFL);
  ::raise(number);  // delivered when this handler returns
}

}  // namespace

void catch_stop_signals() {
  struct sigaction action {};
  action.sa_handler = on_stop_signal;
  action.sa_flags = SA_RESTART;
  ::sigfillset(&action.sa_mask);
  for (const int number : {SIGUSR1, SIGTERM, SIGINT}) ::sigaction(number, &action, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

int stop_signal() { return first_signal.load(); }
bool stop_requested() { return stop_signal() != 0; }

void leave_if_stopped(double patience_s) {
  if (!stop_requested() || 1e-9 * static_cast<double>(now_ns() - first_ns.load()) < patience_s) return;
  fail(ExitCode::stopped, "stopped by ", stop_signal_name(), ": nothing finished is lost; the same command resumes");
}

const char* stop_signal_name() {
  switch (stop_signal()) {
    case SIGUSR1:
      return "SIGUSR1";
    case SIGTERM:
      return "SIGTERM";
    case SIGINT:
      return "SIGINT";
    default:
      return "";
  }
}

}  // namespace lockstep
