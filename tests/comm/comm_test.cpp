#include "comm/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "comm/comm_cases.h"
#include "comm/mpi_session.h"
#include "comm/patience.h"
#include "comm/thread_comm.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using namespace lockstep::testing;

void run_ranks(int n, const std::function<void(Communicator&)>& body) {
  auto comms = make_thread_comms(n);
  std::vector<std::jthread> threads;
  for (int r = 0; r < n; ++r)
    threads.emplace_back([&body, comm = std::move(comms[r])] {
      try {
        body(*comm);
      } catch (const std::exception& e) {
        ADD_FAILURE() << "rank " << comm->rank() << ": " << e.what();
      }
    });
}

class ThreadCommTest : public ::testing::TestWithParam<std::tuple<int, CommCase>> {};
TEST_P(ThreadCommTest, Case) { run_ranks(std::get<0>(GetParam()), std::get<1>(GetParam()).body); }
INSTANTIATE_TEST_SUITE_P(Threads, ThreadCommTest,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4), ::testing::ValuesIn(kCommCases)),
                         [](const auto& test) {
                           return concat("n", std::get<0>(test.param), "_", std::get<1>(test.param).name);
                         });

class SoloCommTest : public ::testing::TestWithParam<CommCase> {};
TEST_P(SoloCommTest, Case) { GetParam().body(*make_solo_comm()); }
INSTANTIATE_TEST_SUITE_P(Solo, SoloCommTest, ::testing::ValuesIn(kCommCases),
                         [](const auto& test) { return std::string(test.param.name); });

std::string error_of(const std::function<void()>& body, ExitCode code) {
  try {
    body();
  } catch (const Error& e) {
    EXPECT_EQ(e.code, code) << e.what();
    return e.what();
  }
  return "no error";
}

TEST(ThreadComm, ARankThatLeftIsAnErrorNotAHang) {
  auto comms = make_thread_comms(3);
  Bytes word = bytes_of("last word");
  comms[2]->broadcast(word, 2);
  comms[2].reset();
  Bytes heard;
  comms[0]->broadcast(heard, 2);
  EXPECT_EQ(text_of(heard), "last word");
  EXPECT_THAT(error_of([&] { comms[0]->broadcast(heard, 2); }, ExitCode::communication), HasSubstr("rank 2 has left"));
  EXPECT_THAT(error_of([&] { comms[1]->recv(TensorView{}, 2); }, ExitCode::communication), HasSubstr("rank 2 has left"));
}

TEST(ThreadComm, TheWrongShapeIsAnError) {
  auto comms = make_thread_comms(2);
  Matrix<float> sent(2, 3, 0, 1.0f), expected(3, 3, 0, 0.0f);
  comms[0]->send(sent.view(), 1);
  EXPECT_THAT(error_of([&] { comms[1]->recv(expected.view(), 0); }, ExitCode::communication),
              HasSubstr("[3, 3] f32 expected, 24 bytes"));
}

TEST(Patience, ALimitNamesTheSilentPeer) {
  ::setenv("LOCKSTEP_COMM_TIMEOUT_S", "0.05", 1);
  auto comms = make_thread_comms(2);
  ::unsetenv("LOCKSTEP_COMM_TIMEOUT_S");
  EXPECT_THAT(error_of([&] { comms[0]->barrier(); }, ExitCode::communication), HasSubstr("no word from rank 1"));
}

TEST(Patience, TheLimitCountsFromTheLastProgress) {
  Patience patience(0.02);
  int n = 0;
  while (patience.wait()) ++n;
  EXPECT_GT(n, 0);
  patience.progress();
  EXPECT_TRUE(patience.wait());
  Patience endless(0);
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(endless.wait());
}

TEST(Patience, TheVariableIsChecked) {
  for (const char* bad : {"-1", "soon", "5s", "inf", "nan", " 5"}) {
    ::setenv("LOCKSTEP_COMM_TIMEOUT_S", bad, 1);
    EXPECT_THAT(error_of([] { comm_timeout_s(); }, ExitCode::usage), HasSubstr(bad));
  }
  ::setenv("LOCKSTEP_COMM_TIMEOUT_S", "2.5", 1);
  EXPECT_EQ(comm_timeout_s(), 2.5);
  ::setenv("LOCKSTEP_COMM_TIMEOUT_S", "", 1);
  EXPECT_EQ(comm_timeout_s(), 0);
  ::unsetenv("LOCKSTEP_COMM_TIMEOUT_S");
  EXPECT_EQ(comm_timeout_s(), 0);
}

// ---- launchers ----
std::optional<std::string> mismatch(int world_size, std::map<std::string, std::string> env, bool single = false) {
  const auto claim = launcher_claim([&](const char* name) -> const char* {
    const auto found = env.find(name);
    return found == env.end() ? nullptr : found->second.c_str();
  });
  return launcher_mismatch(world_size, claim, single);
}

TEST(Launcher, OneRankWhereMoreWereStartedIsRefused) {
  EXPECT_THAT(mismatch(1, {{"OMPI_COMM_WORLD_SIZE", "3"}}).value_or(""),
              HasSubstr("OMPI_COMM_WORLD_SIZE=3: the launcher belongs to another MPI"));
  EXPECT_THAT(mismatch(1, {{"PMI_SIZE", "3"}}).value_or(""), HasSubstr("PMI_SIZE=3"));
  EXPECT_THAT(mismatch(1, {{"PMIX_RANK", "2"}}).value_or(""), HasSubstr("PMIX_RANK=2"));
  EXPECT_THAT(mismatch(1, {{"SLURM_NTASKS", "3"}}).value_or(""), HasSubstr("start it with srun --mpi=pmix"));
  EXPECT_THAT(mismatch(1, {{"SLURM_NTASKS", "3"}, {"SLURM_STEP_NUM_TASKS", "3"}}).value_or(""),
              HasSubstr("do not understand each other"));
  EXPECT_THAT(mismatch(1, {{"SLURM_NTASKS", "3"}}).value_or(""), HasSubstr("LOCKSTEP_SINGLE=1"));
}

TEST(Launcher, OneRankByIntentIsFine) {
  EXPECT_EQ(mismatch(1, {}), std::nullopt);
  EXPECT_EQ(mismatch(1, {{"SLURM_NTASKS", "1"}}), std::nullopt);
  EXPECT_EQ(mismatch(1, {{"PMIX_RANK", "0"}}), std::nullopt);
  EXPECT_EQ(mismatch(1, {{"SLURM_NTASKS", "3"}}, true), std::nullopt);
  EXPECT_EQ(mismatch(1, {{"OMPI_COMM_WORLD_SIZE", "1"}, {"SLURM_NTASKS", "4"}}), std::nullopt);  // mpirun -np 1 in a job
  EXPECT_EQ(mismatch(1, {{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_NTASKS", "4"}}), std::nullopt);  // srun -n 1 in a job
  EXPECT_EQ(mismatch(1, {{"SLURM_NTASKS", "many"}, {"PMI_SIZE", ""}}), std::nullopt);
}

TEST(Launcher, ManyRanksAreNotDoubted) {
  EXPECT_EQ(mismatch(4, {{"OMPI_COMM_WORLD_SIZE", "4"}, {"SLURM_STEP_NUM_TASKS", "2"}}), std::nullopt);  // mpirun over 2 nodes
  EXPECT_EQ(mismatch(2, {{"SLURM_NTASKS", "8"}}), std::nullopt);
}

}  // namespace
}  // namespace lockstep
