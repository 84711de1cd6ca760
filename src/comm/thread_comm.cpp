#include "comm/thread_comm.h"

#include <array>
#include <condition_variable>
#include <deque>
#include <mutex>

#include "comm/packing.h"
#include "comm/patience.h"

namespace lockstep {

namespace {

using Bytes = std::vector<std::byte>;

enum Channel { kGather, kBroadcast, kMatrix, kExchange, kNChannels };

// What lies between the threads, all under one lock.
struct Hub {
  explicit Hub(int n_ranks) : n(n_ranks), queues(static_cast<size_t>(n_ranks) * n_ranks), mail(n_ranks), left(n_ranks, false) {}

  const int n;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::array<std::deque<Bytes>, kNChannels>> queues;  // [from * n + to]
  std::vector<std::deque<Message>> mail;                          // [to]
  std::vector<bool> left;                                         // [rank]
};

class ThreadComm final : public Communicator {
 public:
  ThreadComm(std::shared_ptr<Hub> hub, int rank) : hub_(std::move(hub)), rank_(rank), patience_s_(comm_timeout_s()) {}
  ~ThreadComm() override {
    const std::lock_guard lock(hub_->mutex);
    hub_->left[rank_] = true;
    hub_->changed.notify_all();
  }

  int rank() const override { return rank_; }
  int size() const override { return hub_->n; }

  void all_gather(TensorView matrix, std::span<const Range> ranges, StreamRef) override {
    check_ranges(matrix, ranges, size());
    const TensorView mine = matrix.columns(ranges[rank_]);
    for (int peer = 0; peer < size(); ++peer)
      if (peer != rank_ && packed_bytes(mine) > 0) push(kGather, packed(mine), peer);
    for (int peer = 0; peer < size(); ++peer) {
      const TensorView theirs = matrix.columns(ranges[peer]);
      if (peer != rank_ && packed_bytes(theirs) > 0) unpack(theirs, pull(kGather, peer));
    }
  }

  void broadcast(Bytes& bytes, int root) override {
    check_peer(root);
    if (root != rank_) {
      bytes = pull(kBroadcast, root);
      return;
    }
    for (int peer = 0; peer < size(); ++peer)
      if (peer != rank_) push(kBroadcast, bytes, peer);
  }

  void flush(size_t) override {}  // whoever wants them finds them in the hub

  void send(TensorView matrix, int to, StreamRef) override {
    check_peer(to);
    push(kMatrix, packed(matrix), to);
  }
  void recv(TensorView matrix, int from, StreamRef) override {
    check_peer(from);
    unpack(matrix, pull(kMatrix, from));
  }

  void post(std::span<const std::byte> bytes, int to) override {
    check_peer(to);
    const std::lock_guard lock(hub_->mutex);
    hub_->mail[to].push_back({rank_, {bytes.begin(), bytes.end()}});
  }
  std::optional<Message> poll() override {
    const std::lock_guard lock(hub_->mutex);
    auto& mail = hub_->mail[rank_];
    if (mail.empty()) return std::nullopt;
    Message message = std::move(mail.front());
    mail.pop_front();
    return message;
  }

  std::vector<Bytes> exchange(std::span<const std::byte> mine) override {
    return exchange_by_doubling(
        rank_, size(), mine, [&](Bytes bytes, int to) { push(kExchange, std::move(bytes), to); },
        [&](int from) { return pull(kExchange, from); });
  }
  void barrier() override { exchange({}); }

 private:
  void check_peer(int peer) const { check(0 <= peer && peer < size(), "rank ", peer, " of ", size()); }

  static Bytes packed(TensorView matrix) {
    Bytes bytes(packed_bytes(matrix));
    pack(bytes.data(), matrix);
    return bytes;
  }
  void push(Channel channel, Bytes bytes, int to) {
    const std::lock_guard lock(hub_->mutex);
    hub_->queues[rank_ * hub_->n + to][channel].push_back(std::move(bytes));
    hub_->changed.notify_all();
  }
  Bytes pull(Channel channel, int from) {
    std::unique_lock lock(hub_->mutex);
    auto& queue = hub_->queues[from * hub_->n + rank_][channel];
    const auto ready = [&] { return !queue.empty() || hub_->left[from]; };
    if (patience_s_ <= 0)
      hub_->changed.wait(lock, ready);
    else if (!hub_->changed.wait_for(lock, std::chrono::duration<double>(patience_s_), ready))
      fail(ExitCode::communication, "rank ", rank_, " of ", size(), ": no word from rank ", from, " for ", patience_s_, " s");
    if (queue.empty()) fail(ExitCode::communication, "rank ", rank_, " of ", size(), ": rank ", from, " has left");
    Bytes bytes = std::move(queue.front());
    queue.pop_front();
    return bytes;
  }

  std::shared_ptr<Hub> hub_;
  int rank_;
  double patience_s_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_thread_comms(int n) {
  check(n >= 1, n, " ranks");
  const auto hub = std::make_shared<Hub>(n);
  std::vector<std::unique_ptr<Communicator>> comms;
  for (int rank = 0; rank < n; ++rank) comms.push_back(std::make_unique<ThreadComm>(hub, rank));
  return comms;
}

}  // namespace lockstep
