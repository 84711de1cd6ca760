#include <gtest/gtest.h>
#include <hdf5.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "telemetry/raw_timings.h"
#include "telemetry/timings_h5.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

struct Directory {
  fs::path path = fs::temp_directory_path() / ("lockstep_timings_" + std::to_string(::getpid()));
  Directory() { fs::remove_all(path), fs::create_directories(path); }
  ~Directory() { fs::remove_all(path); }
};

RequestTiming request(int64_t line, int attempt) {
  return {.line = line,
          .custom_id = "ключ-" + std::to_string(line),
          .attempt = attempt,
          .replica = 1,
          .admitted_s = 0.5,
          .first_token_s = 1.5,
          .done_s = 2.5,
          .n_prompt = 7,
          .n_cached = 0,
          .n_generated = 3,
          .finish_reason = "stop"};
}

StepTiming step(int64_t number) {
  StepTiming t;
  t.step = number;
  t.duration_s = 1.0;
  t.comm_s = 0.5;  // of which
  t.wait_s = 0.25;
  t.n_decode_tokens = 4;
  return t;
}

TEST(RawTimings, LaterAttemptCountsAndTornTailIsLeftOut) {
  Directory dir;
  {
    RawTimings raw(dir.path, 1, 0);
    raw.add(request(2, 1)), raw.add(request(1, 1)), raw.add(step(0));
  }
  {
    RawTimings raw(dir.path, 2, 0);
    raw.add(request(2, 2)), raw.add(step(0)), raw.add(PhaseTiming{"load", 3.0});
  }
  {
    RawTimings raw(dir.path, 2, 1);
    raw.add(step(0)), raw.add(step(1));
  }
  const fs::path torn = dir.path / "journal/timings/e0002-r0001.bin";
  fs::resize_file(torn, fs::file_size(torn) - 3);

  const Timings t = read_timings(dir.path);
  ASSERT_EQ(t.requests.size(), 2u);
  EXPECT_EQ(t.requests[0].line, 1);
  EXPECT_EQ(t.requests[0].attempt, 1);
  EXPECT_EQ(t.requests[1].attempt, 2);
  EXPECT_EQ(t.requests[1].custom_id, "ключ-2");
  EXPECT_EQ(t.steps.at(0).size(), 2u);
  EXPECT_EQ(t.steps.at(1).size(), 1u);
  EXPECT_EQ(t.n_damaged, 1);
  ASSERT_EQ(t.phases.size(), 1u);
  EXPECT_EQ(t.phases[0].timing.name, "load");
}

TEST(RawTimings, GpuSamplesOfAllAttemptsComeBack) {
  Directory dir;
  const auto sample = [](double time_s, double power_w) {
    return GpuSample{.time_s = time_s, .reading = {.power_w = power_w, .memory_used_bytes = 5}};
  };
  RawTimings killed(dir.path, 1, 3);  // not closed
  killed.add(std::vector{sample(1, 100), sample(2, 200)});
  {
    RawTimings raw(dir.path, 2, 3);
    raw.add(std::vector<GpuSample>{});
    raw.add(std::vector{sample(1, 300)});
    raw.add(step(0));
  }
  const Timings t = read_timings(dir.path);
  ASSERT_EQ(t.gpus.size(), 1u);
  const auto& rows = t.gpus.at(3);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[1].attempt, 1);
  EXPECT_EQ(rows[1].sample.time_s, 2);
  EXPECT_EQ(rows[1].sample.reading.power_w, 200);
  EXPECT_EQ(rows[1].sample.reading.memory_used_bytes, 5);
  EXPECT_TRUE(std::isnan(rows[1].sample.reading.temperature_c));
  EXPECT_EQ(rows[1].sample.reading.throttle_reasons, -1);
  EXPECT_EQ(rows[2].attempt, 2);
  EXPECT_EQ(t.steps.at(3).size(), 1u);
  EXPECT_EQ(t.n_damaged, 0);
}

// Its lines were put into another order in between: line 1 of the first attempt is line 2 of the second.
TEST(RawTimings, ALineIsKnownByItsCustomId) {
  Directory dir;
  RequestTiming a = request(1, 1), b = request(1, 2), c = request(3, 2);
  a.custom_id = "a", b.custom_id = "b", c.custom_id = "c";
  {
    RawTimings raw(dir.path, 1, 0);
    raw.add(a), raw.add(request(7, 1));
    c.attempt = 1, raw.add(c), c.attempt = 2;
  }
  {
    RawTimings raw(dir.path, 2, 0);
    raw.add(b), raw.add(c);
  }
  const Timings t = read_timings(dir.path);
  ASSERT_EQ(t.requests.size(), 4u);
  EXPECT_EQ(t.requests[0].custom_id, "a");
  EXPECT_EQ(t.requests[1].custom_id, "b");
  EXPECT_EQ(t.requests[2].custom_id, "c");
  EXPECT_EQ(t.requests[2].attempt, 2);
}

TEST(RawTimings, AKillLosesNoRequestAndLittleOfTheSteps) {
  Directory dir;
  RawTimings raw(dir.path, 1, 0);  // not closed: a kill doesn't
  raw.add(RankPlace{2, 0, 1});
  for (int i = 0; i < 10; ++i) {
    StepTiming t = step(i);
    t.start_s = i;
    raw.add(t);
  }
  EXPECT_GE(read_timings(dir.path).steps.at(0).size(), 9u);
  raw.add(request(1, 1));
  const Timings t = read_timings(dir.path);
  EXPECT_EQ(t.requests.size(), 1u);
  EXPECT_EQ(t.steps.at(0).size(), 10u);
  EXPECT_EQ(t.place_of(1, 0).replica, 2);
  EXPECT_EQ(t.place_of(1, 1).replica, -1);
}

TEST(RawTimings, LastAttemptIsByNumber) {
  Directory dir;
  EXPECT_EQ(last_raw_attempt(dir.path), 0);
  for (const int epoch : {9999, 10000}) RawTimings(dir.path, epoch, 0).add(step(0));
  std::ofstream(dir.path / "journal/timings/e99999-r0000.bin.old") << "not ours";
  EXPECT_EQ(last_raw_attempt(dir.path), 10000);
  EXPECT_EQ(read_timings(dir.path).steps.at(0).back().attempt, 10000);
}

TEST(RawTimings, GarbageIsCountedNotBelieved) {
  Directory dir;
  fs::create_directories(dir.path / "journal/timings");
  std::ofstream(dir.path / "journal/timings/e0001-r0000.bin") << std::string(1000, '\xff');
  std::ofstream(dir.path / "journal/timings/notes.txt") << "not ours";
  const Timings t = read_timings(dir.path);
  EXPECT_EQ(t.n_damaged, 1);
  EXPECT_TRUE(t.requests.empty());
}

TEST(TimingsH5, ColumnsHaveUnitsAndScales) {
  Directory dir;
  Timings t;
  t.requests = {request(1, 1), request(3, 1)};
  t.steps[0] = {{1, step(0)}};
  t.steps[1] = {};
  t.phases = {{1, 0, {"load", 3.0}}};
  const std::string path = dir.path / "timings.h5";
  write_timings_h5(path, t);
  EXPECT_FALSE(fs::exists(path + ".tmp"));

  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  ASSERT_GE(file, 0);
  int64_t lines[2] = {};
  const hid_t set = H5Dopen2(file, "/requests/line", H5P_DEFAULT);
  ASSERT_GE(H5Dread(set, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, lines), 0);
  EXPECT_EQ(lines[1], 3);
  H5Dclose(set);
  const hid_t compute = H5Dopen2(file, "/steps/rank_0/compute", H5P_DEFAULT);
  double seconds = 0;
  ASSERT_GE(H5Dread(compute, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, &seconds), 0);
  EXPECT_DOUBLE_EQ(seconds, 0.5);
  EXPECT_GT(H5Aexists(compute, "units"), 0);
  EXPECT_GT(H5Aexists(compute, "DIMENSION_LIST"), 0);
  H5Dclose(compute);
  EXPECT_GT(H5Lexists(file, "/steps/rank_1", H5P_DEFAULT), 0);
  H5Fclose(file);
}

TEST(TimingsH5, AnUnwritablePlaceIsAnError) { EXPECT_THROW(write_timings_h5("/nonexistent/timings.h5", {}), Error); }

}  // namespace
}  // namespace lockstep
