// A communicator whose broadcasts stay with their root until it flushes them: what MPI may do with a long message while its
// sender is in a wait for a GPU, which is no call of MPI.
#pragma once

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "comm/timed_comm.h"

namespace lockstep {

class HeldComm final : public TimedComm {  // for all other calls, which it passes on
 public:
  explicit HeldComm(std::unique_ptr<Communicator> inner) : TimedComm(std::move(inner), &seconds_) {}

  void broadcast(std::vector<std::byte>& bytes, int root) override {
    if (root != rank()) return TimedComm::broadcast(bytes, root);
    held_.push_back(bytes);
  }
  void flush(size_t most_left) override {
    for (; held_.size() > most_left; held_.pop_front()) TimedComm::broadcast(held_.front(), rank());
  }

 private:
  double seconds_ = 0;
  std::deque<std::vector<std::byte>> held_;
};

}  // namespace lockstep
