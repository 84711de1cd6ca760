#include "comm/watch.h"

#include <chrono>
#include <cstdlib>

#include "base/error.h"
#include "base/log.h"

namespace lockstep {

Watch::Watch(std::function<std::string()> look, WatchOptions options)
    : look_(std::move(look)), options_(options), thread_([this](const std::stop_token& stop) { run(stop); }) {}

Watch::~Watch() {
  thread_.request_stop();
  thread_.join();
}

void Watch::check() const {
  if (found_) [[unlikely]]
    fail(ExitCode::communication, fault_);
}

void Watch::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  const auto rests = [&](double seconds) {  // false: asked to stop
    stopped_.wait_for(lock, stop, std::chrono::duration<double>(seconds), [] { return false; });
    return !stop.stop_requested();
  };
  while (fault_.empty()) {
    if (!rests(options_.interval_s)) return;
    fault_ = look_();
  }
  found_ = true;
  if (!rests(options_.grace_s)) return;
  log_error(fault_, " (and this rank did not get to say so for ", options_.grace_s, " s)");
  std::_Exit(static_cast<int>(ExitCode::communication));
}

}  // namespace lockstep
