// A communicator that adds up the seconds its caller spends in it: what a step waited for others. Wraps any other.
#pragma once

#include <chrono>
#include <memory>

#include "comm/communicator.h"

namespace lockstep {

class TimedComm : public Communicator {
 public:
  TimedComm(std::unique_ptr<Communicator> inner, double* seconds) : inner_(std::move(inner)), seconds_(seconds) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  void all_gather(TensorView m, std::span<const Range> ranges, StreamRef s) override {
    timed([&] { inner_->all_gather(m, ranges, s); });
  }
  int64_t rows_beside() const override { return inner_->rows_beside(); }
  void begin_gather(TensorView m, Range rows, std::span<const Range> ranges) override {
    timed([&] { inner_->begin_gather(m, rows, ranges); });
  }
  void end_gather() override {
    timed([&] { inner_->end_gather(); });
  }
  void broadcast(std::vector<std::byte>& bytes, int root) override {
    timed([&] { inner_->broadcast(bytes, root); });
  }
  void flush(size_t most_left) override {
    timed([&] { inner_->flush(most_left); });
  }
  void progress() override { inner_->progress(); }
  void send(TensorView m, int to, StreamRef s) override {
    timed([&] { inner_->send(m, to, s); });
  }
  void recv(TensorView m, int from, StreamRef s) override {
    timed([&] { inner_->recv(m, from, s); });
  }
  void post(std::span<const std::byte> bytes, int to) override { inner_->post(bytes, to); }
  std::optional<Message> poll() override { return inner_->poll(); }
  std::vector<std::vector<std::byte>> exchange(std::span<const std::byte> mine) override { return inner_->exchange(mine); }
  void barrier() override { inner_->barrier(); }

 private:
  template <class Call>
  void timed(const Call& call) {
    const auto start = std::chrono::steady_clock::now();
    call();
    *seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  std::unique_ptr<Communicator> inner_;
  double* seconds_;
};

}  // namespace lockstep
