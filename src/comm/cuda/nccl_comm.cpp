#include "comm/cuda/nccl_comm.h"

#include <cuda_runtime.h>
#include <nccl.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "comm/cuda/cuda_call.h"
#include "comm/cuda/peer_gather.h"
#include "comm/patience.h"
#include "comm/roll_call.h"
#include "comm/watch.h"

namespace lockstep {

namespace {

constexpr double kStartLimit_s = 120;

class NcclComm final : public Communicator {
 public:
  NcclComm(std::unique_ptr<Communicator> host, const NcclOptions& options)
      : host_(std::move(host)),
        stream_(static_cast<cudaStream_t>(options.stream.handle)),
        name_(options.name),
        members_(options.members),
        most_bytes_(options.most_bytes) {
    for (int r = static_cast<int>(members_.size()); r < size(); ++r) members_.push_back(concat("rank ", r));
    RollCall roll(*host_, members_);
    const double limit_s = comm_timeout_s() > 0 ? comm_timeout_s() : kStartLimit_s;
    roll.call(concat(name_, ": beginning"), limit_s);
    const bool gathers = most_bytes_ > 0;
    if (gathers && options.peers) {
      const bool one_machine = on_one_machine(*host_);
      if (one_machine) peers_ = PeerGather::make(*host_, stream_);
      if (peers_) return;
      if (one_machine && rank() == 0)
        log_warning(name_, ": these GPUs of one node don't reach each other's memory, so gathers go by NCCL and take longer (",
                    list(), "); let each rank see all GPUs of its node");
    }
    join(roll, limit_s);
    watch_.emplace([this] { return fault(); });
    if (gathers) check_cuda_call(cudaMalloc(&pieces_, most_bytes_), concat("taking ", most_bytes_, " bytes for ", name_));
  }

  ~NcclComm() override {
    watch_.reset();
    peers_.reset();
    if (comm_ == nullptr) return;
    const bool alone = std::uncaught_exceptions() > 0 || cudaDeviceSynchronize() != cudaSuccess;  // the others may not come
    ncclResult_t state = alone ? ncclInternalError : ncclCommFinalize(comm_);
    Patience patience(kStartLimit_s);
    while (state == ncclInProgress && patience.wait())
      if (ncclCommGetAsyncError(comm_, &state) != ncclSuccess) break;
    if (state == ncclSuccess)
      ncclCommDestroy(comm_);
    else
      ncclCommAbort(comm_);
    cudaFree(pieces_);
  }

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }

  // Without peers: each rank's columns lie together in its piece, are sent to all, and then go to their place in the rows.
  void all_gather(TensorView matrix, std::span<const Range> ranges, StreamRef) override {
    check(static_cast<int>(ranges.size()) == size(), "all_gather with ", ranges.size(), " ranges among ", size(), " ranks");
    if (matrix.rows == 0) return;
    if (peers_) return peers_->all_gather(matrix, ranges);
    const auto element = static_cast<size_t>(size_of(matrix.dtype));
    std::vector<Piece> pieces;
    size_t at = 0;
    for (const Range& range : ranges) {
      const Piece piece{matrix.columns(range), static_cast<size_t>(range.size()) * element, pieces_ + at};
      pieces.push_back(piece);
      at += (piece.width * static_cast<size_t>(matrix.rows) + 255) / 256 * 256;
    }
    check(at <= most_bytes_, "gathering ", at, " bytes, room is for ", most_bytes_);
    const Piece& mine = pieces[static_cast<size_t>(rank())];
    copy(mine, true);
    as_group("gathering", [&](const auto& call) {
      for (int r = 0; r < size(); ++r) {
        const Piece& piece = pieces[static_cast<size_t>(r)];
        if (piece.width > 0)
          call(ncclBroadcast(piece.memory, piece.memory, piece.width * static_cast<size_t>(matrix.rows), ncclUint8, r, comm_,
                             stream_));
      }
    });
    for (int r = 0; r < size(); ++r)
      if (r != rank()) copy(pieces[static_cast<size_t>(r)], false);
  }

  int64_t rows_beside() const override { return peers_ ? peers_->rows_beside() : Communicator::rows_beside(); }
  void begin_gather(TensorView matrix, Range rows, std::span<const Range> ranges) override {
    if (!peers_) return Communicator::begin_gather(matrix, rows, ranges);
    peers_->begin_gather(matrix, rows, ranges);
  }
  void end_gather() override {
    if (peers_) peers_->end_gather();
  }

  void send(TensorView matrix, int to, StreamRef) override {
    check(matrix.row_stride == matrix.cols, "sending a slab");
    if (matrix.rows == 0) return;
    as_group(concat("sending to rank ", to),
             [&](const auto& call) { call(ncclSend(matrix.data, bytes_of(matrix), ncclUint8, to, comm_, stream_)); });
  }
  void recv(TensorView matrix, int from, StreamRef) override {
    check(matrix.row_stride == matrix.cols, "receiving a slab");
    if (matrix.rows == 0) return;
    as_group(concat("receiving from rank ", from),
             [&](const auto& call) { call(ncclRecv(matrix.data, bytes_of(matrix), ncclUint8, from, comm_, stream_)); });
  }

  void broadcast(std::vector<std::byte>& bytes, int root) override { host_->broadcast(bytes, root); }
  void flush(size_t most_left) override { host_->flush(most_left); }
  void progress() override { host_->progress(); }
  void post(std::span<const std::byte> bytes, int to) override { host_->post(bytes, to); }
  std::optional<Message> poll() override { return host_->poll(); }
  std::vector<std::vector<std::byte>> exchange(std::span<const std::byte> mine) override { return host_->exchange(mine); }
  void barrier() override { host_->barrier(); }

 private:
  struct Piece {
    TensorView columns;  // in the matrix
    size_t width;        // bytes of a row
    std::byte* memory;   // [rows, width]
  };

  static size_t bytes_of(const TensorView& m) { return static_cast<size_t>(m.rows * m.cols) * size_of(m.dtype); }

  void copy(const Piece& piece, bool out_of_matrix) {
    if (piece.width == 0) return;
    const TensorView& m = piece.columns;
    const size_t pitch = static_cast<size_t>(m.row_stride) * size_of(m.dtype);
    const auto rows = static_cast<size_t>(m.rows);
    check_cuda_call(
        out_of_matrix
            ? cudaMemcpy2DAsync(piece.memory, piece.width, m.data, pitch, piece.width, rows, cudaMemcpyDeviceToDevice, stream_)
            : cudaMemcpy2DAsync(m.data, pitch, piece.memory, piece.width, piece.width, rows, cudaMemcpyDeviceToDevice, stream_),
        concat(name_, ": copying columns"));
  }

  void ensure(Located<ncclResult_t> result, const std::string& what) const {
    if (result.value != ncclSuccess) [[unlikely]]
      throw Error(ExitCode::communication, words_for(result.value, what), result.where);
  }

  std::string words_for(ncclResult_t result, const std::string& what) const {
    const std::string& me = members_[static_cast<size_t>(host_->rank())];
    return concat("NCCL, ", name_, ": ", what, " at ", me, ": ", ncclGetErrorString(result), " (members: ", list(), ")");
  }

  // All begin here at about the same time; from here on one that stays away leaves the others waiting in NCCL.
  void join(RollCall& roll, double limit_s) {
    ::setenv("NCCL_NVLS_ENABLE", "0", 1);
    ncclUniqueId id{};
    if (rank() == 0) ensure(ncclGetUniqueId(&id), "drawing an id");
    std::vector<std::byte> bytes(sizeof id);
    std::memcpy(bytes.data(), &id, sizeof id);
    host_->broadcast(bytes, 0);
    std::memcpy(&id, bytes.data(), sizeof id);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const ncclResult_t begun = ncclCommInitRankConfig(&comm_, size(), id, rank(), &config);
    if (begun != ncclInProgress) ensure(begun, "joining");
    settle("joining", limit_s, [&] { return concat("; not ready: ", roll.missing(2)); });
    roll.call(concat("NCCL, ", name_, ": joining"), limit_s);
  }

  // Until the communicator isn't busy any more; an error of it or of a peer ends the wait. `who`: for the message.
  template <class Who>
  void settle(const std::string& what, double limit_s, const Who& who) {
    ncclResult_t state = ncclInProgress;
    for (Patience patience(limit_s);;) {
      ensure(ncclCommGetAsyncError(comm_, &state), what);
      if (state != ncclInProgress) break;
      if (!patience.wait())
        fail(ExitCode::communication, "NCCL, ", name_, ": ", what, " at ", members_[static_cast<size_t>(rank())],
             ": nothing for ", limit_s, " s", who());
    }
    ensure(state, what);
  }

  // Gives `calls` what takes the result of each of its calls of NCCL.
  template <class Calls>
  void as_group(const std::string& what, const Calls& calls) {
    check(comm_ != nullptr, name_, " has no NCCL: ", what);
    watch_->check();
    const std::lock_guard lock(mutex_);
    const auto begun = [&](ncclResult_t result) {
      if (result != ncclInProgress) ensure(result, what);
    };
    ensure(ncclGroupStart(), what);
    calls(begun);
    const ncclResult_t ended = ncclGroupEnd();
    begun(ended);
    if (ended == ncclInProgress) settle(what, comm_timeout_s(), [&] { return concat(" (members: ", list(), ")"); });
  }

  // In the watch's thread. Where the program is in a call of NCCL, it will see for itself.
  std::string fault() {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return "";
    ncclResult_t state = ncclSuccess;
    if (const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state); asked != ncclSuccess) state = asked;
    return state == ncclSuccess || state == ncclInProgress ? "" : words_for(state, "while the GPU worked");
  }

  std::string list() const {
    std::string all;
    for (const std::string& member : members_) all += (all.empty() ? "" : "; ") + member;
    return all;
  }

  std::unique_ptr<Communicator> host_;
  cudaStream_t stream_;
  std::string name_;
  std::vector<std::string> members_;
  size_t most_bytes_;
  std::mutex mutex_;  // NCCL is called by one thread at a time
  ncclComm_t comm_ = nullptr;
  std::unique_ptr<PeerGather> peers_;  // where all ranks are on one node and reach each other
  std::byte* pieces_ = nullptr;
  std::optional<Watch> watch_;
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_comm(std::unique_ptr<Communicator> host, const NcclOptions& options) {
  return std::make_unique<NcclComm>(std::move(host), options);
}

}  // namespace lockstep
