// What read_timings_h5 gives back, and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>

#include "telemetry/timings_h5.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class TimingsH5Read : public ::testing::Test {
 protected:
  TimingsH5Read() { fs::remove_all(directory_), fs::create_directories(directory_); }
  ~TimingsH5Read() override { fs::remove_all(directory_); }

  fs::path directory_ = fs::temp_directory_path() / ("lockstep_timings_read_" + std::to_string(::getpid()));
  std::string path_ = directory_ / "timings.h5";

  std::string refusal() {
    try {
      read_timings_h5(path_);
    } catch (const Error& e) {
      EXPECT_EQ(e.code, ExitCode::unreadable) << e.what();
      EXPECT_THAT(e.what(), HasSubstr(path_));
      return e.what();
    }
    return "accepted";
  }
  // Opens the file for somebody who means no good.
  std::string refusal_after(const std::function<void(hid_t)>& change);
};

Timings example() {
  Timings t;
  for (int i = 0; i < 5; ++i)
    t.requests.push_back({.line = 2 * i + 1,
                          .custom_id = i == 3 ? "" : "界 " + std::to_string(i),
                          .attempt = 1 + i % 2,
                          .replica = i,
                          .admitted_s = 0.5 * i,
                          .first_token_s = i == 4 ? std::numeric_limits<double>::quiet_NaN() : 1.0 * i,
                          .done_s = 2.0 * i,
                          .n_prompt = 10 * i,
                          .n_cached = i,
                          .n_generated = 3 * i,
                          .finish_reason = i % 2 == 0 ? "stop" : "length"});
  for (const int rank : {0, 1, 10})
    for (int i = 0; i < 4; ++i)
      t.steps[rank].push_back({1 + i / 2,
                               {.step = i,
                                .start_s = 1.0 * i,
                                .duration_s = 0.75,
                                .comm_s = 0.5,
                                .wait_s = 0.25,
                                .n_prefill_tokens = 7,
                                .n_decode_tokens = rank,
                                .n_seqs = 2,
                                .n_pages = 3}});
  t.steps[11] = {};
  for (int i = 0; i < 3; ++i)
    t.gpus[10].push_back({1 + i / 2,
                          {.time_s = 0.5 * i,
                           .reading = {.power_w = 100.0 + i,
                                       .temperature_c = 40,
                                       .sm_clock_mhz = 1980,
                                       .memory_clock_mhz = 2619,
                                       .utilisation_percent = 97,
                                       .memory_utilisation_percent = 38,
                                       .energy_j = 10.0 * i,
                                       .memory_used_bytes = int64_t{70} << 30,
                                       .throttle_reasons = 4}}});
  t.gpus[10].push_back({2, {.time_s = 9}});  // of a GPU that says nothing
  t.places[{1, 10}] = {5, 1, 2};
  t.phases = {{1, 0, {"open", 0.5}}, {1, 0, {"run", 2}}, {2, 10, {"open", 1}}};
  return t;
}

std::string TimingsH5Read::refusal_after(const std::function<void(hid_t)>& change) {
  write_timings_h5(path_, example());
  const hid_t file = H5Fopen(path_.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  change(file);
  H5Fclose(file);
  return refusal();
}

TEST_F(TimingsH5Read, GivesBackWhatWasWritten) {
  const Timings written = example();
  write_timings_h5(path_, written);
  const Timings t = read_timings_h5(path_);
  ASSERT_EQ(t.requests.size(), written.requests.size());
  for (size_t i = 0; i < t.requests.size(); ++i) {
    const RequestTiming &a = t.requests[i], &b = written.requests[i];
    EXPECT_EQ(a.line, b.line);
    EXPECT_EQ(a.custom_id, b.custom_id);
    EXPECT_EQ(a.attempt, b.attempt);
    EXPECT_EQ(a.replica, b.replica);
    EXPECT_EQ(a.admitted_s, b.admitted_s);
    EXPECT_EQ(a.done_s, b.done_s);
    EXPECT_EQ(a.n_prompt, b.n_prompt);
    EXPECT_EQ(a.n_cached, b.n_cached);
    EXPECT_EQ(a.n_generated, b.n_generated);
    EXPECT_EQ(a.finish_reason, b.finish_reason);
  }
  EXPECT_EQ(t.requests[2].first_token_s, 2);
  EXPECT_TRUE(std::isnan(t.requests[4].first_token_s));
  ASSERT_EQ(t.steps.size(), 4u);
  EXPECT_TRUE(t.steps.at(11).empty());
  const Timings::Step& step = t.steps.at(10).at(2);
  EXPECT_EQ(step.attempt, 2);
  EXPECT_EQ(step.timing.step, 2);
  EXPECT_EQ(step.timing.start_s, 2);
  EXPECT_EQ(step.timing.duration_s, 0.75);
  EXPECT_EQ(step.timing.comm_s, 0.5);
  EXPECT_EQ(step.timing.wait_s, 0.25);
  EXPECT_EQ(step.timing.n_prefill_tokens, 7);
  EXPECT_EQ(step.timing.n_decode_tokens, 10);
  EXPECT_EQ(step.timing.n_seqs, 2);
  EXPECT_EQ(step.timing.n_pages, 3);
  EXPECT_EQ(t.place_of(1, 10).replica, 5);
  EXPECT_EQ(t.place_of(1, 10).stage, 1);
  EXPECT_EQ(t.place_of(1, 10).tensor_rank, 2);
  EXPECT_EQ(t.place_of(2, 10).replica, -1);
  ASSERT_EQ(t.gpus.size(), 1u);
  ASSERT_EQ(t.gpus.at(10).size(), 4u);
  const Timings::Gpu& gpu = t.gpus.at(10)[2];
  EXPECT_EQ(gpu.attempt, 2);
  EXPECT_EQ(gpu.sample.time_s, 1);
  EXPECT_EQ(gpu.sample.reading.power_w, 102);
  EXPECT_EQ(gpu.sample.reading.temperature_c, 40);
  EXPECT_EQ(gpu.sample.reading.sm_clock_mhz, 1980);
  EXPECT_EQ(gpu.sample.reading.memory_clock_mhz, 2619);
  EXPECT_EQ(gpu.sample.reading.utilisation_percent, 97);
  EXPECT_EQ(gpu.sample.reading.memory_utilisation_percent, 38);
  EXPECT_EQ(gpu.sample.reading.energy_j, 20);
  EXPECT_EQ(gpu.sample.reading.memory_used_bytes, int64_t{70} << 30);
  EXPECT_EQ(gpu.sample.reading.throttle_reasons, 4);
  const GpuReading& nothing = t.gpus.at(10)[3].sample.reading;
  EXPECT_TRUE(std::isnan(nothing.power_w) && std::isnan(nothing.energy_j));
  EXPECT_EQ(nothing.memory_used_bytes, -1);
  ASSERT_EQ(t.phases.size(), 3u);
  EXPECT_EQ(t.phases[2].timing.name, "open");
  EXPECT_EQ(t.phases[2].rank, 10);
  EXPECT_EQ(t.phases[1].timing.seconds, 2);
}

TEST_F(TimingsH5Read, AnEmptyRunIsFine) {
  write_timings_h5(path_, {});
  const Timings t = read_timings_h5(path_);
  EXPECT_TRUE(t.requests.empty() && t.steps.empty() && t.phases.empty());
}

TEST_F(TimingsH5Read, AFileWithoutGpusIsFine) {  // as versions before them wrote it
  EXPECT_EQ(refusal_after([](hid_t file) { H5Ldelete(file, "gpu", H5P_DEFAULT); }), "accepted");
}

TEST_F(TimingsH5Read, WhatIsNoHdf5IsRefused) {
  EXPECT_THAT(refusal(), HasSubstr("No such file"));
  std::ofstream(path_) << "";
  EXPECT_THAT(refusal(), HasSubstr("no whole HDF5 file"));
  std::ofstream(path_) << std::string(10000, 'x');
  EXPECT_THAT(refusal(), HasSubstr("no whole HDF5 file"));
  fs::remove(path_), fs::create_directory(path_);
  EXPECT_THAT(refusal(), HasSubstr("Is a directory"));
}

TEST_F(TimingsH5Read, CutShortAnywhereIsRefused) {
  write_timings_h5(path_, example());
  const auto whole = fs::file_size(path_);
  for (uintmax_t size = whole - 1; size > 0; size -= std::min<uintmax_t>(size, 997)) {
    fs::resize_file(path_, size);
    EXPECT_THAT(refusal(), HasSubstr("no whole HDF5 file")) << size;
  }
}

TEST_F(TimingsH5Read, WhatIsMissingIsNamed) {
  for (const char* name : {"requests", "steps", "phases", "requests/custom_id", "requests/done", "steps/rank_10/pages",
                           "phases/phase", "gpu/rank_10/power"})
    EXPECT_THAT(refusal_after([&](hid_t file) { H5Ldelete(file, name, H5P_DEFAULT); }),
                HasSubstr(std::string("lacks ") + fs::path(name).filename().c_str()))
        << name;
}

TEST_F(TimingsH5Read, OtherFormsAreRefused) {
  const auto replace = [](hid_t file, const char* name, hid_t type, std::vector<hsize_t> shape) {
    H5Ldelete(file, name, H5P_DEFAULT);
    const hid_t space = H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr);
    H5Dclose(H5Dcreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    H5Sclose(space);
  };
  EXPECT_THAT(refusal_after([&](hid_t f) { replace(f, "requests/done", H5T_NATIVE_DOUBLE, {4}); }),
              HasSubstr("requests/done has 4 rows, the first column 5"));
  EXPECT_THAT(refusal_after([&](hid_t f) {
                replace(f, "requests/done", H5T_NATIVE_DOUBLE, {5, 1});
              }),
              HasSubstr("requests/done is not one-dimensional"));
  EXPECT_THAT(refusal_after([&](hid_t f) { replace(f, "requests/done", H5T_NATIVE_INT64, {5}); }), HasSubstr("another type"));
  EXPECT_THAT(refusal_after([&](hid_t f) { replace(f, "requests/attempt", H5T_NATIVE_DOUBLE, {5}); }),
              HasSubstr("another type"));
  EXPECT_THAT(refusal_after([&](hid_t f) { replace(f, "requests/custom_id", H5T_NATIVE_INT64, {5}); }),
              HasSubstr("another type"));
  EXPECT_THAT(refusal_after([&](hid_t f) { replace(f, "requests/custom_id", H5T_C_S1, {5}); }), HasSubstr("variable length"));
  EXPECT_THAT(refusal_after([&](hid_t f) { replace(f, "requests/line", H5T_NATIVE_INT64, {hsize_t{1} << 40}); }),
              HasSubstr("more than fit into a file of its size"));
  EXPECT_THAT(refusal_after([&](hid_t f) { H5Gclose(H5Gcreate2(f, "steps/rank_x", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)); }),
              HasSubstr("rank_x, which is no rank"));
  EXPECT_THAT(refusal_after([&](hid_t f) { H5Gclose(H5Gcreate2(f, "gpu/rank_x", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)); }),
              HasSubstr("gpu holds rank_x, which is no rank"));
}

TEST_F(TimingsH5Read, NumbersOutOfRangeAreNamed) {
  EXPECT_THAT(refusal_after([](hid_t file) {
                const int64_t values[5] = {1, 2, 3, 4, int64_t{1} << 40};
                const hid_t set = H5Dopen2(file, "requests/generated_tokens", H5P_DEFAULT);
                H5Dwrite(set, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
                H5Dclose(set);
              }),
              AllOf(HasSubstr("generated_tokens"), HasSubstr("1099511627776")));
}

// A report is handed on; what lies elsewhere on the machine must not get into it.
TEST_F(TimingsH5Read, NothingOutsideTheFileIsRead) {
  const std::string other = directory_ / "other.h5", raw = directory_ / "secret";
  write_timings_h5(other, example());
  std::ofstream(raw) << std::string(1000, 's');
  EXPECT_THAT(refusal_after([&](hid_t f) {
                H5Ldelete(f, "requests", H5P_DEFAULT);
                H5Lcreate_external(other.c_str(), "requests", f, "requests", H5P_DEFAULT, H5P_DEFAULT);
              }),
              HasSubstr("link to somewhere else"));
  EXPECT_THAT(refusal_after([&](hid_t f) {
                H5Ldelete(f, "gpu", H5P_DEFAULT);
                H5Lcreate_external(other.c_str(), "gpu", f, "gpu", H5P_DEFAULT, H5P_DEFAULT);
              }),
              HasSubstr("link to somewhere else"));
  EXPECT_THAT(refusal_after([&](hid_t f) {
                H5Ldelete(f, "requests/done", H5P_DEFAULT);
                H5Lcreate_soft("/requests/admitted", f, "requests/done", H5P_DEFAULT, H5P_DEFAULT);
              }),
              HasSubstr("link to somewhere else"));
  EXPECT_THAT(refusal_after([&](hid_t f) {
                H5Ldelete(f, "requests/attempt", H5P_DEFAULT);
                const hsize_t n = 5;
                const hid_t space = H5Screate_simple(1, &n, nullptr), properties = H5Pcreate(H5P_DATASET_CREATE);
                H5Pset_external(properties, raw.c_str(), 0, 5 * sizeof(int64_t));
                H5Dclose(H5Dcreate2(f, "requests/attempt", H5T_NATIVE_INT64, space, H5P_DEFAULT, properties, H5P_DEFAULT));
                H5Pclose(properties), H5Sclose(space);
              }),
              HasSubstr("lies in another file"));
  EXPECT_THAT(refusal_after([&](hid_t f) {
                H5Ldelete(f, "requests/attempt", H5P_DEFAULT);
                const hsize_t n = 5;
                const hid_t space = H5Screate_simple(1, &n, nullptr), properties = H5Pcreate(H5P_DATASET_CREATE);
                H5Pset_virtual(properties, space, other.c_str(), "requests/attempt", space);
                H5Dclose(H5Dcreate2(f, "requests/attempt", H5T_NATIVE_INT64, space, H5P_DEFAULT, properties, H5P_DEFAULT));
                H5Pclose(properties), H5Sclose(space);
              }),
              HasSubstr("lies in another file"));
}

TEST_F(TimingsH5Read, ManyNamesOfOneGroupDoNotMultiplyItsRows) {
  Timings t = example();
  t.steps[0].resize(3000, t.steps[0].back());
  write_timings_h5(path_, t);
  const hid_t file = H5Fopen(path_.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  for (int rank = 20; rank < 2020; ++rank)
    H5Lcreate_hard(file, "steps/rank_0", file, ("steps/rank_" + std::to_string(rank)).c_str(), H5P_DEFAULT, H5P_DEFAULT);
  H5Fclose(file);
  EXPECT_THAT(refusal(), HasSubstr("more than fit into a file of its size"));
}

// One text that all rows point to is small in the file and large in memory.
TEST_F(TimingsH5Read, ASharedTextDoesNotMultiply) {
  Timings t;
  t.requests.resize(40);
  t.requests[0].custom_id = std::string(1 << 20, 'x');
  write_timings_h5(path_, t);
  EXPECT_EQ(read_timings_h5(path_).requests[0].custom_id.size(), size_t{1} << 20);

  const hid_t file = H5Fopen(path_.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  H5Ldelete(file, "requests/custom_id", H5P_DEFAULT);
  const hsize_t n = t.requests.size(), one = 1;
  const hid_t space = H5Screate_simple(1, &n, nullptr), type = H5Tcopy(H5T_C_S1);
  H5Tset_size(type, H5T_VARIABLE);
  const hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(properties, 1, &one);  // a row: length, address and index of its text
  const hid_t set = H5Dcreate2(file, "requests/custom_id", type, space, H5P_DEFAULT, properties, H5P_DEFAULT);
  std::vector<const char*> texts(n, "");
  texts[0] = t.requests[0].custom_id.c_str();
  H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, texts.data());
  H5Fflush(file, H5F_SCOPE_GLOBAL);
  hsize_t bytes = 0;
  hsize_t row = 0;
  ASSERT_GE(H5Dget_chunk_storage_size(set, &row, &bytes), 0);
  std::vector<char> reference(bytes);
  uint32_t mask = 0;
  ASSERT_GE(H5Dread_chunk(set, H5P_DEFAULT, &row, &mask, reference.data()), 0);
  for (row = 1; row < n; ++row) ASSERT_GE(H5Dwrite_chunk(set, H5P_DEFAULT, 0, &row, bytes, reference.data()), 0);
  H5Dclose(set), H5Pclose(properties), H5Tclose(type), H5Sclose(space), H5Fclose(file);
  EXPECT_THAT(refusal(), HasSubstr("requests/custom_id holds texts too long"));
}

}  // namespace
}  // namespace lockstep
