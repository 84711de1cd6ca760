#include "comm/mpi_comm.h"

#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <deque>
#include <exception>
#include <string>

#include "comm/mpi_check.h"
#include "comm/packing.h"
#include "comm/patience.h"

namespace lockstep {

namespace {

using Bytes = std::vector<std::byte>;
using SharedBytes = std::shared_ptr<const Bytes>;

enum Tag { kGather = 1, kBroadcast, kMatrix, kControl, kExchange };

constexpr double kDrainLimitS = 10;  // a destructor's patience with messages nobody receives

int count_of(size_t bytes) {
  if (bytes > INT_MAX)
    fail(ExitCode::communication, "a message of ", bytes, " bytes: MPI takes 2147483647; use a smaller batch");
  return static_cast<int>(bytes);
}

class MpiComm final : public Communicator {
 public:
  // Takes over `comm`.
  MpiComm(MPI_Comm comm, std::vector<int> world_ranks)
      : comm_(comm),
        world_ranks_(std::move(world_ranks)),
        patience_s_(comm_timeout_s()),
        n_exceptions_(std::uncaught_exceptions()) {
    mpi_check(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
    mpi_check(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
    char host[256] = "";
    ::gethostname(host, sizeof host - 1);
    const std::string_view name = host;
    for (const Bytes& bytes : exchange(std::as_bytes(std::span(name))))
      hosts_.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }

  ~MpiComm() override {
    if (std::uncaught_exceptions() == n_exceptions_ && drain()) {
      MPI_Comm_free(&comm_);
      return;
    }
    // MPI may still read these.
    static_cast<void>(new std::deque<Outgoing>(std::move(outgoing_)));
    static_cast<void>(new std::optional<Incoming>(std::move(incoming_)));
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  // Everybody pushes its slab to everybody: one message a pair, packed where the slab is strided.
  void all_gather(TensorView matrix, std::span<const Range> ranges, StreamRef) override {
    check_ranges(matrix, ranges, size_);
    if (size_ == 1) return;
    const TensorView mine = matrix.columns(ranges[rank_]);
    const size_t row_bytes = static_cast<size_t>(matrix.rows) * size_of(matrix.dtype);  // of one column
    size_t theirs_bytes = 0;
    for (int peer = 0; peer < size_; ++peer)
      if (peer != rank_) theirs_bytes += static_cast<size_t>(ranges[peer].size()) * row_bytes;
    if (received_.size() < theirs_bytes) received_.resize(theirs_bytes);
    clear_requests();

    std::byte* to = received_.data();
    for (int peer = 0; peer < size_; ++peer) {
      const TensorView slab = matrix.columns(ranges[peer]);
      const size_t bytes = packed_bytes(slab);
      if (peer == rank_ || bytes == 0) continue;
      std::byte* where = is_contiguous(slab) ? slab.data : to;
      ok(MPI_Irecv(where, count_of(bytes), MPI_BYTE, peer, kGather, comm_, add_request(peer, count_of(bytes))), "all_gather",
         peer);
      to += bytes;
    }
    if (const size_t bytes = packed_bytes(mine); bytes > 0) {
      const std::byte* from = mine.data;
      if (!is_contiguous(mine)) {
        if (packed_.size() < bytes) packed_.resize(bytes);
        pack(packed_.data(), mine);
        from = packed_.data();
      }
      for (int i = 1; i < size_; ++i) {  // each rank begins with its neighbour, so that nobody is everybody's first
        const int peer = (rank_ + i) % size_;
        ok(MPI_Isend(from, count_of(bytes), MPI_BYTE, peer, kGather, comm_, add_request(peer, kSent)), "all_gather", peer);
      }
    }
    wait_all("all_gather");

    to = received_.data();
    for (int peer = 0; peer < size_; ++peer) {
      const TensorView slab = matrix.columns(ranges[peer]);
      const size_t bytes = packed_bytes(slab);
      if (peer == rank_ || bytes == 0) continue;
      if (!is_contiguous(slab)) unpack(slab, {to, bytes});
      to += bytes;
    }
  }

  void broadcast(Bytes& bytes, int root) override {
    check_peer(root);
    if (root != rank_) {
      bytes = pull(kBroadcast, root, "broadcast");
      return;
    }
    if (size_ == 1) return;
    const auto copy = std::make_shared<const Bytes>(bytes);
    ++n_broadcasts_;
    for (int peer = 0; peer < size_; ++peer)
      if (peer != rank_) push(kBroadcast, copy, peer, "broadcast");
  }

  // A long message stays here until its receiver asks for it, and MPI notices that only while this rank calls it.
  void flush(size_t most_left) override {
    const auto is_on_its_way = [&](Outgoing& out) {
      return out.broadcast > 0 && out.broadcast + most_left <= n_broadcasts_ && !is_done(out);
    };
    for (Patience patience(patience_s_);;) {
      const auto first = std::find_if(outgoing_.begin(), outgoing_.end(), is_on_its_way);
      if (first == outgoing_.end()) return;
      if (!patience.wait()) give_up("broadcast", name(first->to));
    }
  }

  void progress() override {
    for (Outgoing& out : outgoing_) is_done(out);
  }

  void send(TensorView matrix, int to, StreamRef) override {
    check_peer(to);
    auto bytes = std::make_shared<Bytes>(packed_bytes(matrix));
    pack(bytes->data(), matrix);
    push(kMatrix, std::move(bytes), to, "send");
  }

  void recv(TensorView matrix, int from, StreamRef) override {
    check_peer(from);
    const size_t bytes = packed_bytes(matrix);
    const bool direct = is_contiguous(matrix);
    if (!direct && received_.size() < bytes) received_.resize(bytes);
    std::byte* to = direct ? matrix.data : received_.data();
    clear_requests();
    ok(MPI_Irecv(to, count_of(bytes), MPI_BYTE, from, kMatrix, comm_, add_request(from, count_of(bytes))), "recv", from);
    wait_all("recv");
    if (!direct) unpack(matrix, {to, bytes});
  }

  void post(std::span<const std::byte> bytes, int to) override {
    check_peer(to);
    push(kControl, std::make_shared<const Bytes>(bytes.begin(), bytes.end()), to, "post");
  }

  std::optional<Message> poll() override {
    reap();
    if (!incoming_) {
      int found = 0;
      MPI_Message message;
      MPI_Status status;
      mpi_check(MPI_Improbe(MPI_ANY_SOURCE, kControl, comm_, &found, &message, &status), "poll");
      if (found) start_receive(incoming_.emplace(), message, status);
    }
    if (!incoming_) return std::nullopt;
    int done = 0;
    ok(MPI_Test(&incoming_->request, &done, MPI_STATUS_IGNORE), "poll", incoming_->from);
    if (!done) return std::nullopt;  // a long message, still coming
    Message message{incoming_->from, std::move(incoming_->bytes)};
    incoming_.reset();
    return message;
  }

  std::vector<Bytes> exchange(std::span<const std::byte> mine) override {
    return exchange_by_doubling(
        rank_, size_, mine,
        [&](Bytes bytes, int to) { push(kExchange, std::make_shared<const Bytes>(std::move(bytes)), to, "exchange"); },
        [&](int from) { return pull(kExchange, from, "exchange"); });
  }
  void barrier() override { exchange({}); }

 private:
  struct Outgoing {
    MPI_Request request = MPI_REQUEST_NULL;
    SharedBytes bytes;  // kept until MPI is done with it
    int to = 0;
    uint64_t broadcast = 0;  // of this rank's, from 1; 0: another message
  };
  struct Incoming {
    MPI_Request request = MPI_REQUEST_NULL;
    Bytes bytes;
    int from = 0;
  };

  void check_peer(int peer) const { check(0 <= peer && peer < size_, "rank ", peer, " of ", size_); }

  // "r5 on node03", by world rank: what a person looks for.
  std::string name(int peer) const {
    if (static_cast<size_t>(peer) >= world_ranks_.size()) return concat("r?", peer);
    const std::string rank = concat("r", world_ranks_[peer]);
    return static_cast<size_t>(peer) < hosts_.size() ? concat(rank, " on ", hosts_[peer]) : rank;
  }

  // As mpi_check, with the peer's name, which is only made where it is needed.
  void ok(Located<int> code, const char* what, int peer) const {
    if (code.value != MPI_SUCCESS) [[unlikely]]
      throw Error(ExitCode::communication,
                  concat(what, " between ", name(rank_), " and ", name(peer), ": ", mpi_error_text(code.value)), code.where);
  }

  void clear_requests() {
    requests_.clear();
    peers_.clear();
    expected_.clear();
  }
  // expected: bytes to be received; kSent for a send.
  MPI_Request* add_request(int peer, int expected) {
    peers_.push_back(peer);
    expected_.push_back(expected);
    if (requests_.capacity() < 2 * static_cast<size_t>(size_)) requests_.reserve(2 * static_cast<size_t>(size_));
    return &requests_.emplace_back(MPI_REQUEST_NULL);
  }

  void push(Tag tag, SharedBytes bytes, int to, const char* what) {
    reap();
    Outgoing out{MPI_REQUEST_NULL, std::move(bytes), to, tag == kBroadcast ? n_broadcasts_ : 0};
    ok(MPI_Isend(out.bytes->data(), count_of(out.bytes->size()), MPI_BYTE, to, tag, comm_, &out.request), what, to);
    if (!is_done(out, what)) outgoing_.push_back(std::move(out));
  }

  // Waits for the next message of `from` with this tag, whatever its length.
  Bytes pull(Tag tag, int from, const char* what) {
    int found = 0;
    MPI_Message message;
    MPI_Status status;
    for (Patience patience(patience_s_);;) {
      ok(MPI_Improbe(from, tag, comm_, &found, &message, &status), what, from);
      if (found) break;
      if (!patience.wait()) give_up(what, name(from));
    }
    Incoming in;
    start_receive(in, message, status);
    clear_requests();
    *add_request(from, static_cast<int>(in.bytes.size())) = in.request;
    wait_all(what);
    return std::move(in.bytes);
  }

  void start_receive(Incoming& in, MPI_Message& message, const MPI_Status& status) {
    int n_bytes = 0;
    in.from = status.MPI_SOURCE;
    ok(MPI_Get_count(&status, MPI_BYTE, &n_bytes), "a message", in.from);
    check(n_bytes >= 0, "a message without a length");
    in.bytes.resize(static_cast<size_t>(n_bytes));
    ok(MPI_Imrecv(in.bytes.data(), n_bytes, MPI_BYTE, &message, &in.request), "a message", in.from);
  }

  // Until all of requests_ are done; peers_[i] is who requests_[i] is with.
  void wait_all(const char* what) {
    const int n = static_cast<int>(requests_.size());
    indices_.resize(requests_.size());
    statuses_.resize(requests_.size());
    int n_left = n;
    for (Patience patience(patience_s_); n_left > 0;) {
      int n_done = 0;
      const int code = MPI_Testsome(n, requests_.data(), &n_done, indices_.data(), statuses_.data());
      if (code == MPI_ERR_IN_STATUS)
        for (int i = 0; i < n_done; ++i) mpi_check(statuses_[i].MPI_ERROR, what, " with ", name(peers_[indices_[i]]));
      mpi_check(code, what);
      if (n_done == MPI_UNDEFINED) break;
      for (int i = 0; i < n_done; ++i) check_length(statuses_[i], indices_[i], what);
      n_left -= n_done;
      if (n_done > 0)
        patience.progress();
      else if (!patience.wait())
        give_up(what, waited_for());
    }
  }

  void check_length(const MPI_Status& status, int index, const char* what) const {
    if (expected_[index] == kSent) return;
    int n_bytes = 0;
    ok(MPI_Get_count(&status, MPI_BYTE, &n_bytes), what, peers_[index]);
    if (n_bytes != expected_[index])
      fail(ExitCode::communication, what, ": ", n_bytes, " bytes came from ", name(peers_[index]), ", ", expected_[index],
           " were expected");
  }

  std::string waited_for() const {
    std::string names;
    for (size_t i = 0; i < requests_.size(); ++i)
      if (requests_[i] != MPI_REQUEST_NULL) names += (names.empty() ? "" : ", ") + name(peers_[i]);
    return names;
  }

  [[noreturn]] void give_up(const char* what, const std::string& peers) const {
    fail(ExitCode::communication, what, ": ", name(rank_), " has waited ", patience_s_, " s for ", peers);
  }

  // Sends complete in order, but for different peers: look at the oldest few.
  void reap() {
    while (!outgoing_.empty() && is_done(outgoing_.front())) outgoing_.pop_front();
  }

  bool is_done(Outgoing& out, const char* what = "a message") {
    int done = 0;
    ok(MPI_Test(&out.request, &done, MPI_STATUS_IGNORE), what, out.to);
    return done != 0;
  }

  bool drain() noexcept {
    Patience patience(kDrainLimitS);
    while (!outgoing_.empty()) {
      int done = 0;
      if (MPI_Test(&outgoing_.front().request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
      if (done) {
        outgoing_.pop_front();
        patience.progress();
      } else if (!patience.wait()) {
        std::fprintf(stderr, "communicator closed with %zu messages nobody received, the first for r%d\n", outgoing_.size(),
                     world_ranks_[outgoing_.front().to]);
        return false;
      }
    }
    return !incoming_.has_value();
  }

  static constexpr int kSent = -1;

  MPI_Comm comm_;
  int rank_ = 0, size_ = 1;
  std::vector<int> world_ranks_;    // [size]
  std::vector<std::string> hosts_;  // [size]
  double patience_s_;
  int n_exceptions_;

  std::deque<Outgoing> outgoing_;  // buffered sends under way
  uint64_t n_broadcasts_ = 0;
  std::optional<Incoming> incoming_;  // a control message being received

  // Of the call in progress; kept for their memory.
  std::vector<MPI_Request> requests_;
  std::vector<int> peers_, expected_, indices_;
  std::vector<MPI_Status> statuses_;
  Bytes packed_, received_;
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_comm(std::span<const int> world_ranks) {
  const std::vector<int> ranks(world_ranks.begin(), world_ranks.end());
  int me = 0;
  mpi_check(MPI_Comm_rank(MPI_COMM_WORLD, &me), "MPI_Comm_rank");
  MPI_Group world = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
  mpi_check(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
  const int code = MPI_Group_incl(world, static_cast<int>(ranks.size()), ranks.data(), &group);
  MPI_Group_free(&world);
  mpi_check(code, "a group of ", ranks.size(), " ranks");
  int rank_in_group = MPI_UNDEFINED;
  MPI_Group_rank(group, &rank_in_group);
  MPI_Comm comm = MPI_COMM_NULL;
  const int made = rank_in_group == MPI_UNDEFINED ? MPI_SUCCESS : MPI_Comm_create_group(MPI_COMM_WORLD, group, 0, &comm);
  MPI_Group_free(&group);
  mpi_check(made, "MPI_Comm_create_group");
  check(comm != MPI_COMM_NULL, "r", me, " makes a communicator it is not in");
  return std::make_unique<MpiComm>(comm, ranks);
}

std::unique_ptr<Communicator> make_mpi_world() {
  int size = 0;
  mpi_check(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  std::vector<int> ranks(size);
  for (int i = 0; i < size; ++i) ranks[i] = i;
  MPI_Comm comm = MPI_COMM_NULL;
  mpi_check(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
  return std::make_unique<MpiComm>(comm, ranks);
}

}  // namespace lockstep
