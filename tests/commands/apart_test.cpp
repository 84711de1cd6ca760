#include "commands/apart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "base/error.h"
#include "telemetry/report_data.h"
#include "telemetry/timings_h5.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::pair<ExitCode, std::string> fault_of(const std::function<void()>& work) {
  try {
    run_apart("the file", work);
  } catch (const Error& e) {
    return {e.code, e.what()};
  }
  return {ExitCode::done, ""};
}

TEST(RunApart, FaultsComeBackAsTheyAre) {
  const fs::path made = fs::temp_directory_path() / ("lockstep_apart_" + std::to_string(::getpid()));
  EXPECT_EQ(fault_of([&] { std::ofstream(made) << "x"; }).first, ExitCode::done);
  EXPECT_TRUE(fs::remove(made));
  EXPECT_EQ(fault_of([] { fail(ExitCode::output_io, std::string(100000, 'x')); }),
            std::pair(ExitCode::output_io, std::string(100000, 'x')));
  EXPECT_EQ(fault_of([] { throw std::runtime_error("odd"); }), std::pair(ExitCode::other, std::string("odd")));
}

TEST(RunApart, ACrashIsAFaultOfTheFile) {
  for (const int signal : {SIGSEGV, SIGABRT, SIGKILL, SIGXCPU}) {
    const auto [code, message] = fault_of([signal] { ::raise(signal); });
    EXPECT_EQ(code, ExitCode::unreadable);
    EXPECT_THAT(message, HasSubstr("the file: damaged"));
  }
  EXPECT_EQ(fault_of([] { ::_exit(0); }).first, ExitCode::unreadable);
}

// Damaged bytes give a refusal or odd numbers; what crashes does so apart.
TEST(RunApart, DamagedTimingsAreSurvived) {
  const fs::path dir = fs::temp_directory_path() / ("lockstep_damaged_" + std::to_string(::getpid()));
  fs::create_directories(dir);
  const std::string path = dir / "timings.h5";
  Timings t;
  for (int i = 0; i < 5; ++i)
    t.requests.push_back({.line = i + 1, .custom_id = "request", .done_s = 2, .finish_reason = "stop"});
  for (int i = 0; i < 9; ++i)
    t.steps[i % 2].push_back({1, {.step = i, .start_s = 1.0 * i, .duration_s = 1, .n_decode_tokens = 2}});
  t.phases = {{1, 0, {"open", 0.5}}};
  write_timings_h5(path, t);
  std::ifstream in(path, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(in), {}};
  std::mt19937 random(5);
  int n_refused = 0;
  for (int round = 0; round < 80; ++round) {
    std::string bytes = whole;
    for (int i = 0; i < 1 + round % 8; ++i) bytes[random() % bytes.size()] = static_cast<char>(random());
    std::ofstream(path, std::ios::binary) << bytes;
    const ExitCode code = fault_of([&] { to_json(reduce(read_timings_h5(path))); }).first;
    EXPECT_TRUE(code == ExitCode::done || code == ExitCode::unreadable) << static_cast<int>(code);
    n_refused += code == ExitCode::unreadable;
  }
  EXPECT_GT(n_refused, 10);
  fs::remove_all(dir);
}

}  // namespace
}  // namespace lockstep
