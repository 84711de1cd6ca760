// How many sequences a replica takes ahead of its scheduler: enough for the next steps by what the last ones began, and no
// more, so that lines stay with the work server for whichever replica gets to them first.
//   waiting.add(id); ...   waiting.has_outcome(id); waiting.end_step(n_finished);   n = waiting.room();
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>

#include "base/ids.h"

namespace lockstep {

class Waiting {
 public:
  // lag: of the scheduler. Who follows on what a step begins comes lag + 2 steps later; two more for lines on their way here.
  explicit Waiting(int lag) : n_steps_(static_cast<size_t>(lag) + 4) {}

  void add(RequestId id) { ids_.push_back(id); }                   // admitted; in ascending order
  void has_outcome(RequestId id) { seen_ = std::max(seen_, id); }  // so it has begun, and those before it
  void end_step(size_t n_finished) {
    finished_a_step_ += (static_cast<double>(n_finished) - finished_a_step_) / 32;
    size_t n = 0;
    for (; !ids_.empty() && ids_.front() <= seen_; ++n) ids_.pop_front();
    most_begun_ = std::max(n, most_begun_ - most_begun_ / 16);
  }

  size_t finishing() const { return static_cast<size_t>(finished_a_step_ * n_steps_); }  // in the next steps, about
  size_t room() const {
    const size_t most = std::max(kFewest, n_steps_ * most_begun_);
    return most > ids_.size() ? most - ids_.size() : 0;
  }

 private:
  static constexpr size_t kFewest = 8;
  size_t n_steps_, most_begun_ = 0;
  double finished_a_step_ = 0;
  RequestId seen_ = -1;
  std::deque<RequestId> ids_;  // admitted, and no outcome yet
};

}  // namespace lockstep
