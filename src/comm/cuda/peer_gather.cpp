#include "comm/cuda/peer_gather.h"

#include <cuda.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>

#include "base/bytes.h"
#include "base/error.h"
#include "comm/cuda/cuda_call.h"
#include "comm/patience.h"
#include "kernels/push.h"

namespace lockstep {

namespace {

// Words that ranks have for each other: [0 ..] of pushes, by rank, and two of the rank's own; from kBesideFlags on of gathers
// beside the stream, by rank.
constexpr size_t kWordsBytes = 256, kBesideFlags = 32;
uint32_t* word(std::byte* words, size_t i) { return reinterpret_cast<uint32_t*>(words) + i; }

// A function of the driver; null where it has none.
template <class Function>
Function of_driver(const char* name) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found;
  if (cudaGetDriverEntryPointByVersion(name, &entry, 12000, cudaEnableDefault, &found) != cudaSuccess) return nullptr;
  return reinterpret_cast<Function>(entry);
}

// Memory as another process can open it: a handle is that of a whole allocation.
struct Exported {
  cudaIpcMemHandle_t handle{};
  uint64_t offset = 0;
};

bool export_memory(std::byte* data, Exported& exported) {
  const auto address_range = of_driver<CUresult (*)(CUdeviceptr*, size_t*, CUdeviceptr)>("cuMemGetAddressRange");
  CUdeviceptr base = 0;
  size_t bytes = 0;
  if (address_range == nullptr || address_range(&base, &bytes, reinterpret_cast<CUdeviceptr>(data)) != CUDA_SUCCESS)
    return false;
  exported.offset = reinterpret_cast<CUdeviceptr>(data) - base;
  return cudaIpcGetMemHandle(&exported.handle, data) == cudaSuccess;
}

// What tells a running machine from another: a handle of one means nothing on the other.
std::string machine() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

}  // namespace

bool on_one_machine(Communicator& host) {
  const std::string mine = machine();
  const auto machines = host.exchange(std::as_bytes(std::span(mine)));
  return !mine.empty() &&
         std::all_of(machines.begin(), machines.end(), [&](const auto& other) { return other == machines[0]; });
}

std::unique_ptr<PeerGather> PeerGather::make(Communicator& host, cudaStream_t stream) {
  if (host.size() > kernels::kMostPeers + 1) return nullptr;
  std::unique_ptr<PeerGather> peers(new PeerGather(host, stream));
  return peers->peers_words_.empty() ? nullptr : std::move(peers);
}

PeerGather::PeerGather(Communicator& host, cudaStream_t stream)
    : host_(host), stream_(stream), patience_ns_(static_cast<uint64_t>(comm_timeout_s() * 1e9)) {
  check_cuda_call(cudaMalloc(&words_, kWordsBytes), "words of a gather");
  check_cuda_call(cudaMemset(words_, 0, kWordsBytes), "words of a gather");
  check_cuda_call(cudaDeviceSynchronize(), "words of a gather");
  check_cuda_call(cudaMallocHost(&failed_, sizeof *failed_), "a word of a gather");
  *failed_ = 0;
  write_word_ = of_driver<decltype(write_word_)>("cuStreamWriteValue32");
  if (smallest(host_, write_word_ != nullptr ? 1 : 0) == 0) write_word_ = nullptr;
  check_cuda_call(cudaStreamCreateWithFlags(&beside_, cudaStreamNonBlocking), "a stream of gathers");
  check_cuda_call(cudaEventCreateWithFlags(&computed_, cudaEventDisableTiming), "an event of gathers");
  for (cudaEvent_t& sent : sent_)
    check_cuda_call(cudaEventCreateWithFlags(&sent, cudaEventDisableTiming), "an event of gathers");
  peers_words_ = share(words_);
}

PeerGather::~PeerGather() {
  cudaDeviceSynchronize();  // the stream may be gone with the Ops
  for (void* memory : opened_) cudaIpcCloseMemHandle(memory);
  for (cudaEvent_t sent : sent_) cudaEventDestroy(sent);
  cudaEventDestroy(computed_);
  cudaStreamDestroy(beside_);
  cudaFree(words_);
  cudaFreeHost(failed_);
}

std::vector<std::byte*> PeerGather::share(std::byte* mine) {
  Exported exported;
  bool fine = export_memory(mine, exported);
  ByteWriter w;
  w.put(exported);
  const auto all = host_.exchange(w.bytes());
  std::vector<std::byte*> memory(all.size(), mine);
  for (size_t r = 0; r < all.size() && fine; ++r) {
    if (static_cast<int>(r) == host_.rank()) continue;
    const auto theirs = ByteReader(all[r]).get<Exported>();
    void* data = nullptr;
    fine = cudaIpcOpenMemHandle(&data, theirs.handle, cudaIpcMemLazyEnablePeerAccess) == cudaSuccess;
    if (!fine) break;
    opened_.push_back(data);
    memory[r] = static_cast<std::byte*>(data) + theirs.offset;
  }
  (void)cudaGetLastError();  // of a handle that didn't open: NCCL then does it
  return smallest(host_, fine ? 1 : 0) == 1 ? memory : std::vector<std::byte*>();
}

// Where the peers have this matrix, [ranks]; the first time collective.
const std::vector<std::byte*>& PeerGather::known(const TensorView& matrix, std::span<const Range> ranges) {
  check(static_cast<int>(ranges.size()) == host_.size(), "all_gather with ", ranges.size(), " ranges among ", host_.size(),
        " ranks");
  if (*static_cast<volatile uint32_t*>(failed_) != 0)
    fail(ExitCode::communication, "rank ", host_.rank(), " of ", host_.size(),
         ": a GPU of this node has stopped answering the others");
  auto known = matrices_.find(matrix.data);
  if (known == matrices_.end()) {
    auto memory = share(matrix.data);
    check(!memory.empty(), "a matrix of ", matrix.rows, " x ", matrix.cols, " can't be shared between GPUs");
    known = matrices_.emplace(matrix.data, std::move(memory)).first;
  }
  return known->second;
}

void PeerGather::all_gather(TensorView matrix, std::span<const Range> ranges) {
  const auto& theirs = known(matrix, ranges);
  if (matrix.rows == 0) return;
  if (matrix.data == last_) push(matrix.data, 0, 0, 0, theirs, 0);  // nobody reads what it brought last time any more
  last_ = matrix.data;
  const auto element = static_cast<size_t>(size_of(matrix.dtype));
  const Range mine = ranges[static_cast<size_t>(host_.rank())];
  const size_t offset = static_cast<size_t>(mine.begin) * element;
  push(matrix.columns(mine).data, static_cast<size_t>(mine.size()) * element, static_cast<size_t>(matrix.row_stride) * element,
       matrix.rows, theirs, offset);
}

int64_t PeerGather::rows_beside() const {
  constexpr int64_t kRows = 1024;  // products of half as many are about as fast a row
  if (write_word_ == nullptr) return std::numeric_limits<int64_t>::max();
  cudaStreamCaptureStatus recorded = cudaStreamCaptureStatusNone;
  check_cuda_call(cudaStreamIsCapturing(stream_, &recorded), "asking whether a stream is recorded");
  return recorded == cudaStreamCaptureStatusNone ? kRows : std::numeric_limits<int64_t>::max();
}

// Two dimensions by copy engine to each peer, then the gather's number into the peer's word for this rank.
void PeerGather::begin_gather(TensorView matrix, Range rows, std::span<const Range> ranges) {
  const auto& theirs = known(matrix, ranges);
  check(n_begun_ - n_ended_ < kMostBegun, "more than ", kMostBegun, " gathers at a time");
  const auto me = static_cast<size_t>(host_.rank());
  const TensorView mine = matrix.part(rows).columns(ranges[me]);
  const size_t element = size_of(matrix.dtype), pitch = static_cast<size_t>(matrix.row_stride) * element;
  const auto width = static_cast<size_t>(mine.cols) * element, height = static_cast<size_t>(mine.rows);
  last_ = matrix.data;
  check_cuda_call(cudaEventRecord(computed_, stream_), "gathering");
  check_cuda_call(cudaStreamWaitEvent(beside_, computed_), "gathering");
  const uint32_t number = ++n_begun_;
  for (size_t r = 0; r < theirs.size(); ++r) {
    if (r == me) continue;
    if (width > 0 && height > 0)
      check_cuda_call(cudaMemcpy2DAsync(theirs[r] + (mine.data - matrix.data), pitch, mine.data, pitch, width, height,
                                        cudaMemcpyDeviceToDevice, beside_),
                      "copying columns to a peer");
    const auto flag = reinterpret_cast<CUdeviceptr>(word(peers_words_[r], kBesideFlags + me));
    if (write_word_(beside_, flag, number, CU_STREAM_WRITE_VALUE_DEFAULT) != CUDA_SUCCESS)
      fail(ExitCode::hardware, "rank ", host_.rank(), " of ", host_.size(), ": the GPU can't write a word to a peer");
  }
  check_cuda_call(cudaEventRecord(sent_[number % kMostBegun], beside_), "gathering");
}

void PeerGather::end_gather() {
  check(n_ended_ < n_begun_, "no gather is begun");
  kernels::Await args{.number = ++n_ended_, .failed = failed_, .patience = patience_ns_};
  for (size_t r = 0; r < peers_words_.size(); ++r)
    if (static_cast<int>(r) != host_.rank()) args.flags[args.n_peers++] = word(words_, kBesideFlags + r);
  check_cuda_call(cudaStreamWaitEvent(stream_, sent_[args.number % kMostBegun]), "gathering");
  check_cuda_call(kernels::await(args, stream_), "awaiting columns of peers");
}

void PeerGather::push(const std::byte* columns, size_t row_bytes, size_t stride, int64_t rows,
                      const std::vector<std::byte*>& matrices, size_t offset) {
  const auto me = static_cast<size_t>(host_.rank()), n_ranks = static_cast<size_t>(host_.size());
  int unit = 16;
  while ((row_bytes | stride | offset) % static_cast<size_t>(unit) != 0) unit /= 2;
  kernels::Push args{.mine = columns,
                     .row_bytes = row_bytes,
                     .stride = stride,
                     .rows = static_cast<int>(rows),
                     .unit = unit,
                     .n_gathers = word(words_, n_ranks),
                     .n_blocks_done = word(words_, n_ranks + 1),
                     .failed = failed_,
                     .patience = patience_ns_};
  for (size_t r = 0; r < n_ranks; ++r) {
    if (r == me) continue;
    args.theirs[args.n_peers] = matrices[r] + offset;
    args.their_flags[args.n_peers] = word(peers_words_[r], me);
    args.flags[args.n_peers++] = word(words_, r);
  }
  check_cuda_call(kernels::push(args, stream_), "pushing columns");
}

}  // namespace lockstep
