// How long each phase of a run took: seconds by a clock that never jumps. Phases follow each other; one begun again is added
// to, and is a range of NVTX while it runs. Not for steps (telemetry/).
//   PhaseTimer phases; phases.begin("open"); ... phases.begin("load"); ... phases.end(); for (auto& p : phases.phases()) ...
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/nvtx.h"

namespace lockstep {

class PhaseTimer {
 public:
  struct Phase {
    std::string name;
    double start_s = 0;  // when it first began, since the timer was made
    double seconds = 0;
  };

  double now_s() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  // Ends the phase that runs.
  void begin(std::string_view name) {
    end();
    range_.emplace(std::string(name).c_str());
    began_s_ = now_s();
    for (current_ = 0; current_ < phases_.size(); ++current_)
      if (phases_[current_].name == name) return;
    phases_.push_back({std::string(name), began_s_, 0});
  }
  void end() {
    if (current_ < phases_.size()) phases_[current_].seconds += now_s() - began_s_;
    current_ = kNone;
    range_.reset();
  }

  const std::vector<Phase>& phases() const { return phases_; }  // the running one without its time so far

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr size_t kNone = static_cast<size_t>(-1);

  Clock::time_point start_ = Clock::now();
  std::vector<Phase> phases_;
  size_t current_ = kNone;
  double began_s_ = 0;
  std::optional<NvtxRange> range_;
};

}  // namespace lockstep
