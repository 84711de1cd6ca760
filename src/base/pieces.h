// Long work over many values, split among a few threads of its own: for loading, where a large model has 10^10 values. Not for
// the steps of a run (ops/cpu has its pool).
//   in_pieces(n_rows, n_rows * n_cols, 8, [&](int64_t begin, int64_t end) { ... });
#pragma once

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

namespace lockstep {

// work(begin, end) for even pieces of [0, n), the first one by the caller: a piece for each 2^20 of the n_values that lie
// there, at most `most` and one a core. Returns when all are done; `work` doesn't throw.
template <class Work>
void in_pieces(int64_t n, int64_t n_values, int64_t most, const Work& work) {
  const int64_t cores = std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, most);
  const int64_t pieces = std::clamp<int64_t>(n_values >> 20, 1, cores);
  std::vector<std::jthread> threads;
  for (int64_t i = 1; i < pieces; ++i) threads.emplace_back([=, &work] { work(n * i / pieces, n * (i + 1) / pieces); });
  work(0, n / pieces);
}

}  // namespace lockstep
