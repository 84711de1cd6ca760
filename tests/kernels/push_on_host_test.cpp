// The push of an all-gather, run on the host (on_host.h): several GPUs' blocks at once, in any order, gather after gather.
#include <gtest/gtest.h>

#include "tests/kernels/on_host.h"  // before the kernels

#include "kernels/push_kernels.cuh"

namespace lockstep::kernels {

namespace {

struct Rank {
  std::vector<std::byte> matrix;
  uint32_t flags[8] = {};  // [ranks]
  uint32_t n_gathers = 0, n_blocks_done = 0, failed = 0;
};

struct Columns {
  size_t begin, end;  // bytes
};

// What every rank's kernel is given for a gather of `columns`, [ranks].
Push push_of(std::vector<Rank>& ranks, size_t me, size_t stride, int rows, const std::vector<Columns>& columns, int unit) {
  const Columns mine = columns[me];
  Push a{.mine = ranks[me].matrix.data() + mine.begin,
         .row_bytes = mine.end - mine.begin,
         .stride = stride,
         .rows = rows,
         .unit = unit,
         .n_gathers = &ranks[me].n_gathers,
         .n_blocks_done = &ranks[me].n_blocks_done,
         .failed = &ranks[me].failed};
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (r == me) continue;
    a.theirs[a.n_peers] = ranks[r].matrix.data() + mine.begin;
    a.their_flags[a.n_peers] = &ranks[r].flags[me];
    a.flags[a.n_peers++] = &ranks[me].flags[r];
  }
  return a;
}

std::byte value(int gather, size_t rank, size_t i) {
  return static_cast<std::byte>(gather * 31 + static_cast<int>(rank) * 7 + static_cast<int>(i % 251));
}

class PushOnHost : public testing::TestWithParam<int> {};  // the unit

TEST_P(PushOnHost, EveryRankHasAllColumnsWhenItsCallEnds) {
  const int unit = GetParam();
  const auto width = [unit](size_t n) { return n * static_cast<size_t>(unit); };
  const size_t stride = width(11);
  const std::vector<Columns> columns = {
      {0, width(5)}, {width(5), width(6)}, {width(6), width(6)}, {width(6), width(11)}};  // uneven, one empty
  constexpr int kRows = 157;
  std::vector<Rank> ranks(columns.size());
  for (Rank& rank : ranks) rank.matrix.resize(stride * kRows);
  for (int gather = 0; gather < 5; ++gather) {
    for (size_t r = 0; r < ranks.size(); ++r)
      for (int row = 0; row < kRows; ++row)
        for (size_t c = columns[r].begin; c < columns[r].end; ++c)
          ranks[r].matrix[static_cast<size_t>(row) * stride + c] = value(gather, r, static_cast<size_t>(row) * stride + c);
    std::vector<Push> pushes;
    for (size_t r = 0; r < ranks.size(); ++r) pushes.push_back(push_of(ranks, r, stride, kRows, columns, unit));
    std::vector<on_host::Launch> launches;
    int n_wrong = 0, n_ended = 0;
    for (size_t r = 0; r < ranks.size(); ++r)
      launches.push_back({dim3(static_cast<unsigned>(1 + r)), 64, [&, r] {
                            push_columns(pushes[r]);
                            if (static_cast<int32_t>(ranks[r].n_gathers) <= gather || ranks[r].n_blocks_done > 0) return;
                            // The thread that ended the call, and others after it: all is here.
                            bool arrived = true;
                            for (int p = 0; p < pushes[r].n_peers; ++p)
                              arrived = arrived && static_cast<int>(*pushes[r].flags[p]) > gather;
                            if (threadIdx.x > 0 || !arrived) return;
                            ++n_ended;
                            for (size_t from = 0; from < ranks.size(); ++from)
                              for (int row = 0; row < kRows; ++row)
                                for (size_t c = columns[from].begin; c < columns[from].end; ++c) {
                                  const size_t i = static_cast<size_t>(row) * stride + c;
                                  n_wrong += ranks[r].matrix[i] != value(gather, from, i);
                                }
                          }});
    on_host::together(launches, static_cast<unsigned>(gather + 1));
    EXPECT_EQ(n_wrong, 0);
    EXPECT_GE(n_ended, static_cast<int>(ranks.size()));
    for (const Rank& rank : ranks) {
      EXPECT_EQ(rank.n_gathers, static_cast<uint32_t>(gather + 1));
      EXPECT_EQ(rank.failed, 0u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Units, PushOnHost, testing::Values(2, 4, 8, 16));

TEST(PushOnHost, APeerThatDoesNotComeIsSaid) {
  std::vector<Rank> ranks(2);
  for (Rank& rank : ranks) rank.matrix.resize(64);
  Push a = push_of(ranks, 0, 32, 2, {{0, 16}, {16, 32}}, 16);
  a.patience = 1000;
  on_host::together({{dim3(2), 32, [&] { push_columns(a); }}}, 1);
  EXPECT_EQ(ranks[0].failed, 1u);
}

TEST(PushOnHost, NumbersMayRunOver) {
  std::vector<Rank> ranks(2);
  for (Rank& rank : ranks) {
    rank.matrix.resize(64);
    rank.n_gathers = 0xFFFFFFFEu;
    for (uint32_t& flag : rank.flags) flag = 0xFFFFFFFEu;
  }
  for (int gather = 0; gather < 4; ++gather) {
    const Push first = push_of(ranks, 0, 32, 2, {{0, 16}, {16, 32}}, 16),
               second = push_of(ranks, 1, 32, 2, {{0, 16}, {16, 32}}, 16);
    on_host::together({{dim3(1), 32, [&] { push_columns(first); }}, {dim3(1), 32, [&] { push_columns(second); }}}, 3);
  }
  EXPECT_EQ(ranks[0].n_gathers, 2u);
  EXPECT_EQ(ranks[1].flags[0], 2u);
}

TEST(PushOnHost, AwaitEndsWithTheLastOfThePeersNumbers) {
  uint32_t flags[3] = {6, 5, 7}, failed = 0;
  Await a{.n_peers = 3, .flags = {&flags[0], &flags[1], &flags[2]}, .number = 7, .failed = &failed};
  int n_early = 0;
  const auto peer = [&] {
    if (threadIdx.x > 0) return;
    release(&flags[0], 7);
    release(&flags[1], 6), release(&flags[1], 8);
  };
  const auto waiting = [&] {
    await_numbers(a);
    if (threadIdx.x < 3) n_early += static_cast<int32_t>(flags[threadIdx.x] - 7) < 0;
  };
  on_host::together({{dim3(1), 32, waiting}, {dim3(1), 32, peer}}, 5);
  EXPECT_EQ(n_early, 0);
  EXPECT_EQ(failed, 0u);
  a.number = 9, a.patience = 1000;
  on_host::together({{dim3(1), 32, [&] { await_numbers(a); }}}, 1);
  EXPECT_EQ(failed, 1u);
}

}  // namespace

}  // namespace lockstep::kernels
