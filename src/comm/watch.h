// Looks for a fault from a thread of its own, so that one that comes while the program waits elsewhere (for a GPU) ends the
// process instead of the wait going on for ever. Who can look by himself calls `check`, which turns the fault into an Error.
//   Watch watch([&] { return fault_of(comm); });   ... watch.check();
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace lockstep {

struct WatchOptions {
  double interval_s = 0.2;
  double grace_s = 10;  // from the fault until the process is ended, if this Watch is still there
};

class Watch {
 public:
  // look: in words what is wrong, empty while nothing is; after the first words it isn't called any more. When the grace is
  // over, they are logged and the process ends with ExitCode::communication; the launcher ends the other ranks.
  explicit Watch(std::function<std::string()> look, WatchOptions options = {});
  ~Watch();

  void check() const;  // throws Error (communication) once there is a fault

 private:
  void run(const std::stop_token& stop);

  std::function<std::string()> look_;
  WatchOptions options_;
  std::mutex mutex_;
  std::condition_variable_any stopped_;
  std::string fault_;  // written once, before found_
  std::atomic<bool> found_{false};
  std::jthread thread_;  // last, so that it starts when all the rest is there
};

}  // namespace lockstep
