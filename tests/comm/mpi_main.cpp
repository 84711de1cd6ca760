// test_comm_mpi: the cases of comm_cases.h over processes. mpirun -np 3 test_comm_mpi
// Every rank runs the same tests in the same order; one that throws ends the job, since the others wait for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>

#include "comm/comm_cases.h"
#include "comm/mpi_comm.h"
#include "comm/mpi_session.h"
#include "comm/roll_call.h"

namespace lockstep {
namespace {

using namespace lockstep::testing;

MpiSession* session = nullptr;

void run(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "[r%d/%d] %s\n", session->rank, session->size, e.what());
    session->abort(1);
  }
}

class MpiCommTest : public ::testing::TestWithParam<CommCase> {};
TEST_P(MpiCommTest, World) {
  run([] { GetParam().body(*make_mpi_world()); });
}
// Two groups side by side, each with its ranks in descending order.
TEST_P(MpiCommTest, TwoGroups) {
  run([] {
    std::vector<int> group;
    for (int r = session->size - 1; r >= 0; --r)
      if (r % 2 == session->rank % 2) group.push_back(r);
    const auto comm = make_mpi_comm(group);
    EXPECT_EQ(group[comm->rank()], session->rank);
    GetParam().body(*comm);
  });
}
INSTANTIATE_TEST_SUITE_P(Mpi, MpiCommTest, ::testing::ValuesIn(kCommCases),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(MpiSession, KnowsTheRanksOfItsNode) {  // all of them here, but where nodes are pretended
  const char* pretended = std::getenv("LOCKSTEP_NODE_RANKS");
  const int n = pretended != nullptr ? std::atoi(pretended) : session->size;
  std::vector<int> ranks;
  for (int r = 0; r < session->size; ++r)
    if (r / n == session->rank / n) ranks.push_back(r);
  EXPECT_EQ(session->node_ranks, ranks);
  EXPECT_EQ(session->node_size, static_cast<int>(ranks.size()));
  EXPECT_EQ(session->node_rank, session->rank % n);
}

// A replica's groups and the world at once, as a run has them: what goes through one never shows up in another.
TEST(MpiComm, GroupsAndWorldInterleaved) {
  run([] {
    const auto world = make_mpi_world();
    std::vector<int> all(session->size), own{session->rank};
    for (int r = 0; r < session->size; ++r) all[r] = r;
    const auto replica = make_mpi_comm(all);
    const auto alone = make_mpi_comm(own);
    for (int round = 0; round < 200; ++round) {
      world->post(bytes_of("world"), 0);
      replica->post(bytes_of("replica"), 0);
      alone->post(bytes_of("alone"), 0);
      gather_round<float>(*replica, round, 2, 24, 0, even_ranges(24, replica->size()));
      gather_round<float>(*world, round + 1, 2, 24, 0, even_ranges(24, world->size()));
      while (const auto m = world->poll()) EXPECT_EQ(text_of(m->bytes), "world");
      while (const auto m = replica->poll()) EXPECT_EQ(text_of(m->bytes), "replica");
      while (const auto m = alone->poll()) EXPECT_EQ(text_of(m->bytes), "alone");
    }
    world->barrier();
    while (world->poll() || replica->poll() || alone->poll()) {
    }
  });
}

TEST(MpiComm, ASilentPeerIsNamedAfterTheLimit) {
  if (session->size < 2) GTEST_SKIP() << "one rank";
  run([] {
    ::setenv("LOCKSTEP_COMM_TIMEOUT_S", "0.1", 1);
    const auto hasty = make_mpi_world();
    ::setenv("LOCKSTEP_COMM_TIMEOUT_S", "60", 1);
    const auto world = make_mpi_world();
    if (session->rank == 0) {
      Bytes bytes;
      std::string what;
      try {
        hasty->broadcast(bytes, 1);
      } catch (const Error& e) {
        EXPECT_EQ(e.code, ExitCode::communication);
        what = e.what();
      }
      EXPECT_THAT(what, ::testing::HasSubstr(concat("waited 0.1 s for r1 on ", session->host)));
    }
    world->barrier();
  });
}

// All but the last rank come to the second call; it hears their answers all the same.
TEST(MpiComm, RollCallNamesWhoStaysAway) {
  if (session->size < 2) GTEST_SKIP() << "one rank";
  run([] {
    const auto world = make_mpi_world(), after = make_mpi_world();
    std::vector<std::string> names;
    for (int r = 0; r < session->size; ++r) names.push_back(concat("r", r, " on ", session->host, ", GPU ", r));
    RollCall roll(*world, names);
    roll.call("beginning", 60);
    const bool late = session->rank == session->size - 1;
    std::string what;
    try {
      if (!late) roll.call("joining", 0.5);
    } catch (const Error& e) {
      EXPECT_EQ(e.code, ExitCode::communication);
      what = e.what();
    }
    EXPECT_THAT(what, ::testing::HasSubstr(late ? "" : names.back()));
    after->barrier();
    EXPECT_EQ(roll.missing(2), names.back());
    after->barrier();
  });
}

TEST(MpiComm, TheWrongShapeIsAnError) {
  if (session->size < 2) GTEST_SKIP() << "one rank";
  run([] {
    const auto world = make_mpi_world();
    Matrix<float> small(2, 3, 0, 1.0f), large(3, 3, 0, 0.0f);
    if (session->rank == 1) {
      world->send(small.view(), 0);
      world->send(large.view(), 0);
    }
    if (session->rank == 0) {
      EXPECT_THROW(world->recv(large.view(), 1), Error);
      EXPECT_THROW(world->recv(small.view(), 1), Error);
    }
    world->barrier();
  });
}

TEST(MpiSession, KnowsItsPlace) {
  EXPECT_GE(session->node_size, 1);
  EXPECT_LT(session->node_rank, session->node_size);
  EXPECT_FALSE(session->host.empty());
  EXPECT_GT(session->core_share, 0);
  run([] {
    const auto world = make_mpi_world();
    double sum = 0;  // ranks of one node never claim more cores than there are
    for (const Bytes& bytes : world->exchange(std::as_bytes(std::span(&session->core_share, 1)))) {
      double share = 0;
      std::memcpy(&share, bytes.data(), sizeof share);
      sum += share;
    }
    if (session->node_size == session->size) {
      EXPECT_LE(sum, std::thread::hardware_concurrency() + 1e-9);
    }
  });
}

// Failures of all ranks, progress of rank 0.
class RankPrinter : public ::testing::EmptyTestEventListener {
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (result.failed())
      std::fprintf(stderr, "[r%d/%d] %s:%d: %s\n", session->rank, session->size, result.file_name(), result.line_number(),
                   result.message());
  }
};

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::MpiSession mpi(&argc, &argv);
  lockstep::session = &mpi;
  ::testing::InitGoogleMock(&argc, argv);
  ::setenv("LOCKSTEP_COMM_TIMEOUT_S", "60", 1);
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  if (mpi.rank != 0) {
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new lockstep::RankPrinter);
  }
  return RUN_ALL_TESTS();
}
