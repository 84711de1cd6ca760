// All-gathers between the GPUs of one node: bytes right, then microseconds, one by one and in a CUDA graph, by stores into the
// peers' memory and by NCCL; of many rows, also by copy engines, as they go on beside products. The ranks' columns are as even
// as can be.
//   mpirun -np 2 build/cuda/bench/cuda_comm_bench
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <vector>

#include "comm/cuda/cuda_call.h"
#include "comm/cuda/nccl_comm.h"
#include "comm/mpi_comm.h"
#include "comm/mpi_session.h"
#include "mesh/mesh.h"

namespace lockstep {
namespace {

constexpr int64_t kRows[] = {1, 16, 64, 256, 1024, 8192}, kCols[] = {4096, 14336};
constexpr size_t kMostBytes = size_t{8192} * 14336 * 2 + 4096;

uint16_t value(int64_t row, int64_t col, int round) { return static_cast<uint16_t>(row * 31 + col * 7 + round * 1009); }

// Microseconds of one of n.
double time_of(cudaStream_t stream, int n, const std::function<void()>& work) {
  cudaEvent_t begin, end;
  check_cuda_call(cudaEventCreate(&begin), "timing"), check_cuda_call(cudaEventCreate(&end), "timing");
  check_cuda_call(cudaEventRecord(begin, stream), "timing");
  work();
  check_cuda_call(cudaEventRecord(end, stream), "timing");
  check_cuda_call(cudaEventSynchronize(end), "timing");
  float ms = 0;
  check_cuda_call(cudaEventElapsedTime(&ms, begin, end), "timing");
  cudaEventDestroy(begin), cudaEventDestroy(end);
  return 1e3 * static_cast<double>(ms) / n;
}

void measure(MpiSession& mpi, cudaStream_t stream, bool peers) {
  std::vector<int> ranks;
  for (int r = 0; r < mpi.size; ++r) ranks.push_back(r);
  const auto comm =
      make_nccl_comm(make_mpi_comm(ranks), {.stream = {stream}, .name = "bench", .most_bytes = kMostBytes, .peers = peers});
  std::byte* memory[2];  // used in turn, as a layer does
  for (std::byte*& one : memory) check_cuda_call(cudaMalloc(&one, kMostBytes), "a matrix");
  if (mpi.rank == 0)
    std::printf(
        "%s\n| rows x columns | bytes to each peer | one by one, us | in a graph, us | GB/s | beside, us |\n"
        "|---|--:|--:|--:|--:|--:|\n",
        peers ? "peers" : "NCCL");
  for (const int64_t cols : kCols)
    for (const int64_t rows : kRows) {
      std::vector<Range> ranges;
      for (int r = 0; r < mpi.size; ++r) ranges.push_back(split(cols, mpi.size, r));
      const Range mine = ranges[static_cast<size_t>(mpi.rank)];
      std::vector<uint16_t> host(static_cast<size_t>(rows * cols));
      int64_t n_wrong = 0;
      for (int round = 0; round < 4; ++round) {
        std::fill(host.begin(), host.end(), uint16_t{0xFFFF});
        for (int64_t row = 0; row < rows; ++row)
          for (int64_t col = mine.begin; col < mine.end; ++col)
            host[static_cast<size_t>(row * cols + col)] = value(row, col, round);
        const TensorView matrix{memory[round % 2], DType::bf16, rows, cols, cols};
        check_cuda_call(cudaMemcpy2DAsync(matrix.columns(mine).data, static_cast<size_t>(cols) * 2, host.data() + mine.begin,
                                          static_cast<size_t>(cols) * 2, static_cast<size_t>(mine.size()) * 2,
                                          static_cast<size_t>(rows), cudaMemcpyHostToDevice, stream),
                        "filling");
        if (round < 2 || rows < comm->rows_beside())
          comm->all_gather(matrix, ranges);
        else
          comm->begin_gather(matrix, {0, rows}, ranges), comm->end_gather();
        check_cuda_call(cudaMemcpyAsync(host.data(), matrix.data, host.size() * 2, cudaMemcpyDeviceToHost, stream), "looking");
        check_cuda_call(cudaStreamSynchronize(stream), "looking");
        for (int64_t row = 0; row < rows; ++row)
          for (int64_t col = 0; col < cols; ++col)
            n_wrong += host[static_cast<size_t>(row * cols + col)] != value(row, col, round);
      }
      constexpr int kRepeats = 20;
      const auto gathers = [&] {
        for (int i = 0; i < kRepeats; ++i) comm->all_gather({memory[i % 2], DType::bf16, rows, cols, cols}, ranges);
      };
      gathers();
      comm->barrier();
      const double us = time_of(stream, kRepeats, gathers);
      cudaGraph_t graph;
      cudaGraphExec_t exec;
      check_cuda_call(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "recording");
      gathers();
      check_cuda_call(cudaStreamEndCapture(stream, &graph), "recording");
      check_cuda_call(cudaGraphInstantiate(&exec, graph, 0), "recording");
      check_cuda_call(cudaGraphLaunch(exec, stream), "replaying");
      check_cuda_call(cudaStreamSynchronize(stream), "replaying");
      comm->barrier();
      const double graph_us = time_of(stream, kRepeats, [&] { check_cuda_call(cudaGraphLaunch(exec, stream), "replaying"); });
      cudaGraphExecDestroy(exec), cudaGraphDestroy(graph);
      double beside_us = 0;
      if (rows >= comm->rows_beside()) {
        comm->barrier();
        beside_us = time_of(stream, kRepeats, [&] {
          for (int i = 0; i < kRepeats; ++i) {
            comm->begin_gather({memory[i % 2], DType::bf16, rows, cols, cols}, {0, rows}, ranges);
            comm->end_gather();
          }
        });
      }
      const int64_t bytes = rows * mine.size() * 2;
      if (mpi.rank == 0 || n_wrong > 0)
        std::printf("| %lld x %lld%s | %lld | %.1f | %.1f | %.1f | %.1f |\n", static_cast<long long>(rows),
                    static_cast<long long>(cols), n_wrong > 0 ? " WRONG" : "", static_cast<long long>(bytes), us, graph_us,
                    static_cast<double>(bytes) / graph_us / 1e3, beside_us);
      std::fflush(stdout);
    }
  comm->barrier();
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  using namespace lockstep;
  MpiSession mpi(&argc, &argv);
  try {
    check_cuda_call(cudaSetDevice(mpi.node_rank), "choosing the GPU");
    cudaStream_t stream;
    check_cuda_call(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
    for (const bool peers : {true, false}) measure(mpi, stream, peers);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "rank %d: %s\n", mpi.rank, e.what());
    mpi.abort(1);
  }
  return 0;
}
