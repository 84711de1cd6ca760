#include <deque>

#include "comm/communicator.h"
#include "comm/packing.h"

namespace lockstep {

namespace {

// What one rank says to itself is kept until it listens, as between two.
class SoloComm final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }

  void all_gather(TensorView matrix, std::span<const Range> ranges, StreamRef) override { check_ranges(matrix, ranges, 1); }
  void broadcast(std::vector<std::byte>&, int root) override { check_peer(root); }
  void flush(size_t) override {}

  void send(TensorView matrix, int to, StreamRef) override {
    check_peer(to);
    pack(matrices_.emplace_back(packed_bytes(matrix)).data(), matrix);
  }
  void recv(TensorView matrix, int from, StreamRef) override {
    check_peer(from);
    if (matrices_.empty()) fail(ExitCode::communication, "rank 0 waits for a matrix it has not sent to itself");
    unpack(matrix, matrices_.front());
    matrices_.pop_front();
  }

  void post(std::span<const std::byte> bytes, int to) override {
    check_peer(to);
    messages_.push_back({0, {bytes.begin(), bytes.end()}});
  }
  std::optional<Message> poll() override {
    if (messages_.empty()) return std::nullopt;
    Message message = std::move(messages_.front());
    messages_.pop_front();
    return message;
  }

  std::vector<std::vector<std::byte>> exchange(std::span<const std::byte> mine) override {
    return {{mine.begin(), mine.end()}};
  }
  void barrier() override {}

 private:
  static void check_peer(int peer) { check(peer == 0, "rank ", peer, " of 1"); }

  std::deque<std::vector<std::byte>> matrices_;
  std::deque<Message> messages_;
};

}  // namespace

std::unique_ptr<Communicator> make_solo_comm() { return std::make_unique<SoloComm>(); }

}  // namespace lockstep
