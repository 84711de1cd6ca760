// What every Communicator has to do, as bodies that each rank runs: over threads in comm_test.cpp, over processes in
// mpi_main.cpp. Bodies use EXPECT only: a rank that left early would leave the others waiting.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/node_memory.h"
#include "mesh/mesh.h"

namespace lockstep::testing {

struct CommCase {
  const char* name;
  void (*body)(Communicator&);
};
inline void PrintTo(const CommCase& c, std::ostream* out) { *out << c.name; }

using Bytes = std::vector<std::byte>;

inline Bytes bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}
inline std::string text_of(const Bytes& bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

// A matrix with a margin right of its columns; all elements are `fill` at first.
template <class T>
struct Matrix {
  Matrix(int64_t n_rows, int64_t n_cols, int64_t margin, T fill)
      : rows(n_rows), cols(n_cols), stride(n_cols + margin), values(static_cast<size_t>(n_rows * stride), fill) {}
  T& at(int64_t r, int64_t c) { return values[static_cast<size_t>(r * stride + c)]; }
  TensorView view() {
    return {reinterpret_cast<std::byte*>(values.data()), sizeof(T) == 4 ? DType::f32 : DType::bf16, rows, cols, stride};
  }
  int64_t rows, cols, stride;
  std::vector<T> values;
};

template <class T>
T element(int64_t round, int64_t r, int64_t c) {
  return static_cast<T>((round * 7 + r * 31 + c) % 30011);
}

// Each rank writes its columns, everything else holds 30100; afterwards all columns are right and the margin is untouched.
template <class T>
void gather_round(Communicator& comm, int64_t round, int64_t rows, int64_t cols, int64_t margin,
                  const std::vector<Range>& ranges) {
  Matrix<T> m(rows, cols, margin, T(30100));
  const Range mine = ranges[comm.rank()];
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = mine.begin; c < mine.end; ++c) m.at(r, c) = element<T>(round, r, c);
  comm.all_gather(m.view(), ranges);
  int64_t n_wrong = 0;
  for (int64_t r = 0; r < rows; ++r) {
    for (const Range& range : ranges)
      for (int64_t c = range.begin; c < range.end; ++c) n_wrong += m.at(r, c) != element<T>(round, r, c);
    for (int64_t c = cols; c < m.stride; ++c) n_wrong += m.at(r, c) != T(30100);
  }
  EXPECT_EQ(n_wrong, 0) << "rank " << comm.rank() << " of " << comm.size() << ", round " << round << ", [" << rows << ", "
                        << cols << "] margin " << margin;
}

inline std::vector<Range> even_ranges(int64_t cols, int n) {
  std::vector<Range> ranges;
  for (int i = 0; i < n; ++i) ranges.push_back(split(cols, n, i));
  return ranges;
}

// By eye: rank r writes r + 1 into column r.
inline void gather_by_eye(Communicator& comm) {
  Matrix<float> m(1, comm.size(), 0, 0.0f);
  m.at(0, comm.rank()) = static_cast<float>(comm.rank() + 1);
  std::vector<Range> ranges;
  for (int r = 0; r < comm.size(); ++r) ranges.push_back({r, r + 1});
  comm.all_gather(m.view(), ranges);
  for (int r = 0; r < comm.size(); ++r) EXPECT_EQ(m.at(0, r), static_cast<float>(r + 1));
}

inline void gather_shapes(Communicator& comm) {
  int64_t round = 0;
  for (const int64_t rows : {0, 1, 2, 3, 31, 64})
    for (const int64_t cols : {1, 3, 32, 129, 576})
      for (const int64_t margin : {0, 5}) {
        gather_round<float>(comm, round++, rows, cols, margin, even_ranges(cols, comm.size()));
        gather_round<uint16_t>(comm, round++, rows, cols, margin, even_ranges(cols, comm.size()));
      }
}

// Uneven, empty, not in order of the ranks, with a hole that belongs to nobody.
inline void gather_odd_ranges(Communicator& comm) {
  const int n = comm.size();
  for (int heavy = 0; heavy < n; ++heavy) {  // one rank has everything
    std::vector<Range> ranges(n, Range{0, 0});
    ranges[heavy] = {0, 40};
    gather_round<float>(comm, heavy, 5, 40, 3, ranges);
  }
  std::vector<Range> backwards;
  int64_t end = 100;
  for (int r = 0; r < n; ++r) {
    const int64_t width = r == 1 ? 0 : 3 + 5 * r;
    backwards.push_back({end - width, end});
    end -= width;
  }
  gather_round<uint16_t>(comm, 9, 7, 100, 0, backwards);
  gather_round<float>(comm, 10, 7, 100, 2, backwards);
}

// Long enough for MPI's rendezvous path, also uneven.
inline void gather_large(Communicator& comm) {
  gather_round<float>(comm, 1, 300, 1500, 0, even_ranges(1500, comm.size()));
  gather_round<float>(comm, 2, 1, 200000, 0, even_ranges(200000, comm.size()));
}

// Slow and fast ranks in turn, so that messages of several rounds are under way.
inline void gather_many(Communicator& comm) {
  for (int64_t round = 0; round < 500; ++round) {
    if (round % comm.size() == comm.rank())
      for (int i = 0; i < 60; ++i) relax(i);
    gather_round<float>(comm, round, 1 + round % 3, 33, round % 2, even_ranges(33, comm.size()));
  }
}

// The root is through before it lets the others begin.
inline void broadcast_runs_ahead(Communicator& comm) {
  constexpr int kRounds = 5000;
  const int root = comm.size() - 1;
  const auto text = [](int round) { return concat("step ", round, std::string(round % 50, 'x')); };
  if (comm.rank() != root) {
    while (!comm.poll()) relax(60);  // the root's word that it is through
  }
  for (int round = 0; round < kRounds; ++round) {
    Bytes bytes = comm.rank() == root ? bytes_of(text(round)) : bytes_of("old");
    comm.broadcast(bytes, root);
    if (comm.rank() == root && round == kRounds - 1)
      for (int peer = 0; peer < comm.size(); ++peer)
        if (peer != root) comm.post({}, peer);
    if (text_of(bytes) != text(round)) ADD_FAILURE() << "round " << round << ": " << text_of(bytes).substr(0, 40);
  }
  comm.barrier();
}

// A root that waits for something else meanwhile, with calls of progress alone.
inline void broadcasts_arrive_while_the_root_makes_progress(Communicator& comm) {
  const std::shared_ptr<std::byte> memory = make_node_memory(comm, 4096);
  ASSERT_NE(memory, nullptr);
  auto* n_have_it = reinterpret_cast<std::atomic<int>*>(memory.get());
  const Bytes sent(3'000'000, std::byte{7});
  Bytes bytes = comm.rank() == 0 ? sent : Bytes();
  comm.broadcast(bytes, 0);
  EXPECT_TRUE(bytes == sent);
  ++*n_have_it;
  if (comm.rank() == 0) {
    for (int i = 0; i < 100'000 && *n_have_it < comm.size(); ++i) comm.progress(), relax(1000);
    EXPECT_EQ(*n_have_it, comm.size());
  }
  comm.barrier();
}

// What was flushed needs no call of its root any more to arrive; what wasn't may stay on its way.
inline void flushed_broadcasts_arrive_by_themselves(Communicator& comm) {
  const std::shared_ptr<std::byte> memory = make_node_memory(comm, 4096);
  ASSERT_NE(memory, nullptr);
  auto* n_have_first = reinterpret_cast<std::atomic<int>*>(memory.get());
  auto* root_is_through = n_have_first + 1;
  const auto comes = [](const auto& condition) {  // without a call of the communicator
    for (int i = 0; i < 100'000 && !condition(); ++i) relax(1000);
    return condition();
  };
  const Bytes first(3'000'000, std::byte{1}), second(3'000'000, std::byte{2});
  Bytes bytes = first;
  comm.broadcast(bytes, 0);
  EXPECT_TRUE(bytes == first);
  if (comm.rank() == 0) {
    bytes = second;
    comm.broadcast(bytes, 0);
    comm.flush(1);
    *root_is_through = 1;
    EXPECT_TRUE(comes([&] { return *n_have_first == comm.size() - 1; }));
  } else {
    ++*n_have_first;
    EXPECT_TRUE(comes([&] { return *root_is_through == 1; }));
    comm.broadcast(bytes, 0);
  }
  EXPECT_TRUE(bytes == second);
  comm.barrier();
}

inline void broadcast_sizes_and_roots(Communicator& comm) {
  for (int root = 0; root < comm.size(); ++root)
    for (const size_t size : {0, 1, 4000, 4096, 5000, 100000, 3000000}) {
      const Bytes sent(size, std::byte(root + 1));
      Bytes bytes = comm.rank() == root ? sent : Bytes(3);
      comm.broadcast(bytes, root);
      EXPECT_TRUE(bytes == sent) << root << ' ' << size << ' ' << bytes.size();
    }
}

// A pipeline: sends run ahead, the matrix is overwritten at once; order within a pair; strided on both sides; long and short.
inline void send_and_recv(Communicator& comm) {
  const int to = (comm.rank() + 1) % comm.size();
  const int from = (comm.rank() + comm.size() - 1) % comm.size();
  const auto shape = [](int round) { return round % 10 == 9 ? Range{200, 700} : Range{round % 4, 17}; };  // rows, cols
  for (int round = 0; round < 50; ++round) {
    Matrix<float> out(shape(round).begin, shape(round).end, round % 2 ? 4 : 0, 0.0f);
    for (int64_t r = 0; r < out.rows; ++r)
      for (int64_t c = 0; c < out.cols; ++c) out.at(r, c) = element<float>(round + comm.rank(), r, c);
    comm.send(out.view(), to);
    std::fill(out.values.begin(), out.values.end(), -1.0f);
  }
  for (int round = 0; round < 50; ++round) {
    Matrix<float> in(shape(round).begin, shape(round).end, round % 3 ? 2 : 0, -2.0f);
    comm.recv(in.view(), from);
    int64_t n_wrong = 0;
    for (int64_t r = 0; r < in.rows; ++r) {
      for (int64_t c = 0; c < in.cols; ++c) n_wrong += in.at(r, c) != element<float>(round + from, r, c);
      for (int64_t c = in.cols; c < in.stride; ++c) n_wrong += in.at(r, c) != -2.0f;
    }
    EXPECT_EQ(n_wrong, 0) << "round " << round;
  }
}

// Everybody asks rank 0 (itself included) for work and gets answers; meanwhile matrices and broadcasts go on.
inline void post_and_poll(Communicator& comm) {
  constexpr int kAsked = 200;
  std::map<int, int> served;  // by rank, at rank 0
  int n_answers = 0, n_served = 0;
  int64_t step = 0;
  bool asked = false, done = false;
  while (!done) {
    if (!asked && n_answers < kAsked) {
      comm.post(bytes_of(concat("more ", n_answers)), 0);
      asked = true;
    }
    while (const auto message = comm.poll()) {
      const std::string text = text_of(message->bytes);
      if (text.starts_with("more")) {
        EXPECT_EQ(comm.rank(), 0);
        EXPECT_EQ(text, concat("more ", served[message->from])) << "from " << message->from;  // in order
        const int n = served[message->from]++;
        ++n_served;
        // Now and then an answer too long for one packet.
        comm.post(bytes_of(concat("range ", n, std::string(n % 20 == 0 ? 100000 : 0, '.'))), message->from);
      } else {
        EXPECT_EQ(message->from, 0);
        EXPECT_TRUE(text.starts_with(concat("range ", n_answers))) << text.substr(0, 20);
        ++n_answers;
        asked = false;
      }
    }
    gather_round<float>(comm, step++, 2, 20, 0, even_ranges(20, comm.size()));
    Bytes state(1, std::byte(n_served == kAsked * comm.size()));
    comm.broadcast(state, 0);
    const auto answers = comm.exchange(std::as_bytes(std::span(&n_answers, 1)));
    done = state[0] == std::byte(1);
    for (const Bytes& bytes : answers) {
      int n = 0;
      std::memcpy(&n, bytes.data(), sizeof n);
      done = done && n == kAsked;
    }
  }
  EXPECT_EQ(n_answers, kAsked);
  EXPECT_FALSE(comm.poll().has_value());
}

inline void exchange_uneven(Communicator& comm) {
  for (int round = 0; round < 50; ++round) {
    const auto text = [&](int rank) {
      return std::string(static_cast<size_t>((rank * 37 + round * 11) % 97) * (round % 25 ? 1 : 500), char('a' + rank));
    };
    const auto all = comm.exchange(bytes_of(text(comm.rank())));
    EXPECT_EQ(all.size(), static_cast<size_t>(comm.size()));
    for (int rank = 0; rank < static_cast<int>(all.size()); ++rank)
      EXPECT_EQ(text_of(all[rank]), text(rank)) << "round " << round;
  }
}

// Messages of one sender come in the order they were posted, and none crosses the barriers around its round.
inline void posts_keep_their_order(Communicator& comm) {
  constexpr int kPosts = 5;
  for (int round = 0; round < 100; ++round) {
    for (int i = 0; i < kPosts; ++i)
      for (int peer = 0; peer < comm.size(); ++peer) comm.post(bytes_of(concat(round, '.', i)), peer);
    comm.barrier();
    std::vector<int> n_from(comm.size(), 0);
    for (int n = 0, attempt = 0; n < kPosts * comm.size(); relax(attempt++))  // arrival may lag behind the barrier
      while (const auto message = comm.poll()) {
        EXPECT_EQ(text_of(message->bytes), concat(round, '.', n_from[message->from]++)) << "from " << message->from;
        ++n;
      }
    comm.barrier();
  }
}

// What does not fit throws at once, on every rank alike, and leaves the communicator usable.
inline void refuses_nonsense(Communicator& comm) {
  Matrix<float> m(2, 8, 0, 0.0f);
  Bytes bytes;
  std::vector<Range> ranges(comm.size() + 1);
  EXPECT_THROW(comm.all_gather(m.view(), ranges), Error);
  ranges.assign(comm.size(), Range{0, 9});
  EXPECT_THROW(comm.all_gather(m.view(), ranges), Error);
  ranges.assign(comm.size(), Range{3, 2});
  EXPECT_THROW(comm.all_gather(m.view(), ranges), Error);
  EXPECT_THROW(comm.broadcast(bytes, comm.size()), Error);
  EXPECT_THROW(comm.send(m.view(), -1), Error);
  EXPECT_THROW(comm.recv(m.view(), comm.size()), Error);
  EXPECT_THROW(comm.post(bytes, comm.size()), Error);
  gather_by_eye(comm);
}

// Memory of a node: zeros at first, and what one writes all see.
inline void node_memory(Communicator& comm) {
  constexpr size_t kBytes = (size_t{5} << 20) + 3;
  for (int round = 0; round < 3; ++round) {
    const std::shared_ptr<std::byte> memory = make_node_memory(comm, kBytes);
    EXPECT_NE(memory, nullptr);
    if (!memory) return;  // so on all of them
    int64_t n_wrong = 0;
    for (size_t i = 0; i < kBytes; ++i) n_wrong += memory.get()[i] != std::byte{};
    EXPECT_EQ(n_wrong, 0);
    comm.barrier();
    memory.get()[kBytes - 1 - static_cast<size_t>(comm.rank())] = std::byte(comm.rank() + 1);
    comm.barrier();
    for (int r = 0; r < comm.size(); ++r) EXPECT_EQ(memory.get()[kBytes - 1 - static_cast<size_t>(r)], std::byte(r + 1));
  }
  EXPECT_EQ(make_node_memory(comm, size_t{1} << 63), nullptr);  // no length of a file: none has it, and none waits
}

inline const std::vector<CommCase> kCommCases = {
    {"gather_by_eye", gather_by_eye},
    {"gather_shapes", gather_shapes},
    {"gather_odd_ranges", gather_odd_ranges},
    {"gather_large", gather_large},
    {"gather_many", gather_many},
    {"broadcast_runs_ahead", broadcast_runs_ahead},
    {"broadcasts_arrive_while_the_root_makes_progress", broadcasts_arrive_while_the_root_makes_progress},
    {"flushed_broadcasts_arrive_by_themselves", flushed_broadcasts_arrive_by_themselves},
    {"broadcast_sizes_and_roots", broadcast_sizes_and_roots},
    {"send_and_recv", send_and_recv},
    {"post_and_poll", post_and_poll},
    {"exchange_uneven", exchange_uneven},
    {"posts_keep_their_order", posts_keep_their_order},
    {"refuses_nonsense", refuses_nonsense},
    {"node_memory", node_memory},
};

}  // namespace lockstep::testing
