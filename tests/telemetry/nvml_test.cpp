// The reader of a GPU against a library that answers what a file says (fake_nvml.cpp).
#include "telemetry/nvml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "telemetry/gpu_sampler.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsNan;

class NvmlReader : public ::testing::Test {
 protected:
  NvmlReader() { ::setenv("LOCKSTEP_FAKE_NVML", file_.c_str(), 1); }
  ~NvmlReader() override {
    ::unsetenv("LOCKSTEP_FAKE_NVML");
    fs::remove(file_);
  }
  ReadGpu reader(const std::string& bus_id, const std::string& answers, const char* library = FAKE_NVML) {
    std::ofstream(file_) << answers;
    return nvml_reader(bus_id, library, why_not_);
  }

  fs::path file_ = fs::temp_directory_path() / ("lockstep_fake_nvml_" + std::to_string(::getpid()));
  std::string why_not_;
};

constexpr const char* kTwoGpus = R"(
gpu 00000000:1B:00.0
energy 5000000 +1500
power 250500
temperature 41
sm_clock 1980
memory_clock 2619
utilisation 97
memory_utilisation 38
memory_used 70000000000
reasons 4
gpu 00000001:C3:00.0
power 699000
)";

TEST_F(NvmlReader, GivesAllValuesInTheirUnits) {
  const ReadGpu read = reader("00000000:1B:00.0", kTwoGpus);
  ASSERT_TRUE(read) << why_not_;
  const GpuReading r = read();
  EXPECT_DOUBLE_EQ(r.energy_j, 5000);
  EXPECT_DOUBLE_EQ(r.power_w, 250.5);
  EXPECT_EQ(r.temperature_c, 41);
  EXPECT_EQ(r.sm_clock_mhz, 1980);
  EXPECT_EQ(r.memory_clock_mhz, 2619);
  EXPECT_EQ(r.utilisation_percent, 97);
  EXPECT_EQ(r.memory_utilisation_percent, 38);
  EXPECT_EQ(r.memory_used_bytes, 70000000000);
  EXPECT_EQ(r.throttle_reasons, 4);
  EXPECT_DOUBLE_EQ(read().energy_j, 5001.5);
}

TEST_F(NvmlReader, WhatTheGpuDoesNotGiveIsNoNumber) {
  const GpuReading r = reader("00000001:C3:00.0", kTwoGpus)();
  EXPECT_EQ(r.power_w, 699);
  for (const double v :
       {r.energy_j, r.temperature_c, r.sm_clock_mhz, r.memory_clock_mhz, r.utilisation_percent, r.memory_utilisation_percent})
    EXPECT_THAT(v, IsNan());
  EXPECT_EQ(r.memory_used_bytes, -1);
  EXPECT_EQ(r.throttle_reasons, -1);
}

TEST_F(NvmlReader, AGpuIsFoundHoweverItsBusIdIsWritten) {
  for (const char* bus_id : {"0001:c3:00.0", "00000001:c3:00.0", "0001:C3:00.0", "1:c3:0", "00000001:C3:00.0"}) {
    const ReadGpu read = reader(bus_id, kTwoGpus);
    ASSERT_TRUE(read) << bus_id << ": " << why_not_;
    EXPECT_EQ(read().power_w, 699) << bus_id;
  }
  EXPECT_TRUE(reader("0000:1b:00.0", "gpu 0000:1b:00.0\npower 1000\n")) << why_not_;
  EXPECT_TRUE(reader("00000000:1B:00.0", "gpu 0000:1b:00.0\npower 1000\n")) << why_not_;
}

TEST_F(NvmlReader, WithoutAGpuThereIsAReason) {
  EXPECT_FALSE(reader("0000:1b:00.0", kTwoGpus, "/nonexistent/libnvidia-ml.so.1"));
  EXPECT_THAT(why_not_, HasSubstr("/nonexistent/libnvidia-ml.so.1"));
  EXPECT_FALSE(reader("0002:1b:00.0", kTwoGpus));
  EXPECT_THAT(why_not_, AllOf(HasSubstr("0002:1b:00.0"), HasSubstr("Not Found")));
  EXPECT_FALSE(reader("nonsense", kTwoGpus));
  EXPECT_FALSE(reader("0000:1b:00.0", "init 9\n"));
  EXPECT_THAT(why_not_, HasSubstr("Driver Not Loaded"));
  EXPECT_FALSE(reader("0000:1b:00.0", kTwoGpus, "libm.so.6"));
  EXPECT_THAT(why_not_, HasSubstr("is no NVML"));
}

TEST_F(NvmlReader, AnOldLibraryGivesWhatItHas) {
  const GpuReading r = reader("0000:1b:00.0", kTwoGpus, FAKE_NVML_OLD)();
  EXPECT_THAT(r.energy_j, IsNan());
  EXPECT_EQ(r.throttle_reasons, 4) << "under its older name";
  EXPECT_DOUBLE_EQ(r.power_w, 250.5);
}

TEST_F(NvmlReader, AGpuWithoutACounterHasTheEnergyOfItsPower) {
  double now_s = 0;
  GpuSampler sampler(
      reader("0001:c3:00.0", "gpu 00000001:C3:00.0\npower 100000 200000 400000\n"), [&] { return now_s; }, 1e6);
  sampler.begin("load");
  now_s = 2;
  sampler.begin("run");
  now_s = 12;
  sampler.stop();
  ASSERT_EQ(sampler.energies().size(), 2u);
  EXPECT_DOUBLE_EQ(sampler.energies()[0].joules, 300);   // 2 s between 100 and 200 W
  EXPECT_DOUBLE_EQ(sampler.energies()[1].joules, 3000);  // 10 s between 200 and 400 W
  EXPECT_FALSE(sampler.from_counter());
}

}  // namespace
}  // namespace lockstep
