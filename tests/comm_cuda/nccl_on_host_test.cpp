// NcclComm over threads, with NCCL, the CUDA runtime and the peers' stores played here: what it does when a rank stays away,
// when NCCL reports a fault, and in which order it ends. Data don't move.
#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <atomic>

#include <cstdlib>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "comm/cuda/nccl_comm.h"
#include "comm/cuda/peer_gather.h"
#include "comm/thread_comm.h"

// ---- what is played ----
struct ncclComm {
  explicit ncclComm(int r) : rank(r) {}
  int rank;
  std::atomic<ncclResult_t> state{ncclSuccess};
};

namespace {

struct Play {
  int stuck_rank = -1;       // its joining never ends
  bool peers_reach = false;  // each other's memory
  std::atomic<int> n_joined{0}, n_destroyed{0}, n_aborted{0}, n_sent{0};
  std::atomic<ncclComm*> last{nullptr};
  std::string nvls;  // the variable as it was when the first rank joined
  std::mutex mutex;
  std::deque<ncclComm> comms;
};
Play* play = nullptr;
thread_local bool in_group = false;

}  // namespace

const char* ncclGetErrorString(ncclResult_t result) { return result == ncclRemoteError ? "remote process exited" : "bad"; }
ncclResult_t ncclGetUniqueId(ncclUniqueId*) { return ncclSuccess; }
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int, ncclUniqueId, int rank, ncclConfig_t* config) {
  EXPECT_EQ(config->blocking, 0);
  const std::lock_guard lock(play->mutex);
  if (const char* nvls = std::getenv("NCCL_NVLS_ENABLE")) play->nvls = nvls;
  *comm = &play->comms.emplace_back(rank);
  (*comm)->state = rank == play->stuck_rank ? ncclInProgress : ncclSuccess;
  play->last = *comm;
  ++play->n_joined;
  return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  *state = comm->state;
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t) { return ncclSuccess; }
ncclResult_t ncclCommDestroy(ncclComm_t) {
  ++play->n_destroyed;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t) {
  ++play->n_aborted;
  return ncclSuccess;
}
ncclResult_t ncclGroupStart() {
  in_group = true;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  in_group = false;
  return ncclSuccess;
}
ncclResult_t ncclBroadcast(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) { return ncclSuccess; }
ncclResult_t ncclSend(const void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) {
  EXPECT_TRUE(in_group);
  ++play->n_sent;
  return ncclSuccess;
}
ncclResult_t ncclRecv(void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) { return ncclSuccess; }

extern "C" {
cudaError_t cudaMalloc(void** memory, size_t bytes) {
  *memory = std::malloc(bytes);
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMemcpy2DAsync(void*, size_t, const void*, size_t, size_t, size_t, cudaMemcpyKind, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "bad"; }
}

namespace lockstep {

bool on_one_machine(Communicator&) { return true; }
PeerGather::PeerGather(Communicator& host, cudaStream_t stream) : host_(host), stream_(stream), patience_ns_(0) {}
PeerGather::~PeerGather() = default;
std::unique_ptr<PeerGather> PeerGather::make(Communicator& host, cudaStream_t stream) {
  return play->peers_reach ? std::unique_ptr<PeerGather>(new PeerGather(host, stream)) : nullptr;
}
void PeerGather::all_gather(TensorView, std::span<const Range>) {}
int64_t PeerGather::rows_beside() const { return 1; }
void PeerGather::begin_gather(TensorView, Range, std::span<const Range>) {}
void PeerGather::end_gather() {}

namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Nccl : public ::testing::Test {
 protected:
  void SetUp() override {
    play = &played_;
    ::setenv("NCCL_NVLS_ENABLE", "1", 1);
  }
  void TearDown() override { ::unsetenv("LOCKSTEP_COMM_TIMEOUT_S"); }

  NcclOptions options(size_t most_bytes = 0) {
    return {.name = "tp of stage 0", .most_bytes = most_bytes, .members = {"r4 on node03, GPU 0", "r5 on node04, GPU 1"}};
  }
  // What each of two ranks throws from its body; "" where nothing.
  std::vector<std::string> words_of(const std::function<void(std::unique_ptr<Communicator>)>& body) {
    auto comms = make_thread_comms(2);
    std::vector<std::string> words(2);
    std::vector<std::jthread> threads;
    for (size_t r = 0; r < 2; ++r)
      threads.emplace_back([&body, &word = words[r], comm = std::move(comms[r])]() mutable {
        try {
          body(std::move(comm));
        } catch (const Error& e) {
          EXPECT_EQ(e.code, ExitCode::communication);
          word = e.what();
        }
      });
    threads.clear();
    return words;
  }

  Play played_;
};

TEST_F(Nccl, BeginsWithoutMulticastAndEndsInOrder) {
  EXPECT_THAT(words_of([&](auto host) {
                const auto comm = make_nccl_comm(std::move(host), options());
                std::vector<std::byte> memory(64);
                const TensorView matrix{memory.data(), DType::bf16, 2, 16, 16};
                comm->rank() == 0 ? comm->send(matrix, 1) : comm->recv(matrix, 0);
              }),
              ::testing::Each(""));
  EXPECT_EQ(played_.nvls, "0");
  EXPECT_EQ(played_.n_sent, 1);
  EXPECT_EQ(played_.n_destroyed, 2);
  EXPECT_EQ(played_.n_aborted, 0);
}

TEST_F(Nccl, GatherersThatReachEachOtherNeedNone) {
  played_.peers_reach = true;
  const auto gather = [&](auto host) {
    const auto comm = make_nccl_comm(std::move(host), options(4096));
    std::vector<std::byte> memory(64);
    comm->all_gather({memory.data(), DType::bf16, 2, 16, 16}, std::vector<Range>{{0, 8}, {8, 16}});
  };
  EXPECT_THAT(words_of(gather), ::testing::Each(""));
  EXPECT_EQ(played_.n_joined, 0);
  played_.peers_reach = false;
  EXPECT_THAT(words_of(gather), ::testing::Each(""));
  EXPECT_EQ(played_.n_joined, 2);
  EXPECT_EQ(played_.n_destroyed, 2);
}

// One rank does not even come: the other doesn't begin what would wait for it.
TEST_F(Nccl, WhoDoesNotComeIsNamed) {
  ::setenv("LOCKSTEP_COMM_TIMEOUT_S", "0.05", 1);
  const auto words = words_of([&](auto host) {
    if (host->rank() == 0) make_nccl_comm(std::move(host), options());
  });
  EXPECT_EQ(words[0], "tp of stage 0: beginning: r4 on node03, GPU 0 has waited 0.05 s for r5 on node04, GPU 1");
  EXPECT_EQ(played_.n_joined, 0);
}

// One gets stuck inside NCCL: it says so itself, and the one that is through names it.
TEST_F(Nccl, WhoDoesNotGetReadyIsNamed) {
  ::setenv("LOCKSTEP_COMM_TIMEOUT_S", "2", 1);
  played_.stuck_rank = 1;
  const auto words = words_of([&](auto host) { make_nccl_comm(std::move(host), options()); });
  EXPECT_EQ(words[0], "NCCL, tp of stage 0: joining: r4 on node03, GPU 0 has waited 2 s for r5 on node04, GPU 1");
  EXPECT_EQ(words[1], "NCCL, tp of stage 0: joining at r5 on node04, GPU 1: nothing for 2 s; not ready: r5 on node04, GPU 1");
}

// The link breaks while the program does something else; its next call says so.
TEST_F(Nccl, AFaultThatComesLaterEndsTheRun) {
  auto comms = make_thread_comms(2);
  std::unique_ptr<Communicator> one, other;
  {
    const std::jthread starts([&] { other = make_nccl_comm(std::move(comms[1]), options()); });
    one = make_nccl_comm(std::move(comms[0]), options());
  }
  played_.last.load()->state = ncclRemoteError;
  std::unique_ptr<Communicator>& broken = played_.last.load()->rank == 0 ? one : other;
  std::vector<std::byte> memory(64);
  std::string words;
  for (int attempt = 0; words.empty(); ++attempt) {
    try {
      broken->send({memory.data(), DType::bf16, 2, 16, 16}, 1 - broken->rank());
    } catch (const Error& e) {
      words = e.what();
    }
    relax(attempt);
  }
  EXPECT_THAT(words, AllOf(HasSubstr("NCCL, tp of stage 0: while the GPU worked at "), HasSubstr(": remote process exited"),
                           HasSubstr("(members: r4 on node03, GPU 0; r5 on node04, GPU 1)")));
}

}  // namespace
}  // namespace lockstep
