// A communicator whose broadcasts stay with their root until it flushes them: what MPI may do with a long message while its
// sender is in a wait for a GPU, which is no call of MPI.
#pragma once

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "comm/communicator.h"

namespace lockstep {

class HeldComm final : public Communicator {
 public:
  explicit HeldComm(std::unique_ptr<Communicator> inner) : inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  void all_gather(TensorView m, std::span<const Range> ranges, StreamRef s) override { inner_->all_gather(m, ranges, s); }
  void broadcast(std::vector<std::byte>& bytes, int root) override {
    if (root != rank()) return inner_->broadcast(bytes, root);
    held_.push_back(bytes);
  }
  void flush(size_t most_left) override {
    for (; held_.size() > most_left; held_.pop_front()) inner_->broadcast(held_.front(), rank());
  }
  void send(TensorView m, int to, StreamRef s) override { inner_->send(m, to, s); }
  void recv(TensorView m, int from, StreamRef s) override { inner_->recv(m, from, s); }
  void post(std::span<const std::byte> bytes, int to) override { inner_->post(bytes, to); }
  std::optional<Message> poll() override { return inner_->poll(); }
  std::vector<std::vector<std::byte>> exchange(std::span<const std::byte> mine) override { return inner_->exchange(mine); }
  void barrier() override { inner_->barrier(); }

 private:
  std::unique_ptr<Communicator> inner_;
  std::deque<std::vector<std::byte>> held_;
};

}  // namespace lockstep
