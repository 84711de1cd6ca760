#include "telemetry/gpu_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

#include "telemetry/energy.h"

namespace lockstep {
namespace {

using ::testing::IsNan;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kNever = 1e6;  // s: no sample but those at the ends of phases

// A GPU whose counter gives these joules, one a reading.
struct ScriptedGpu {
  std::vector<double> counter_j;
  size_t n_read = 0;
  double now_s = 0;

  ReadGpu read() {
    return [this] { return GpuReading{.power_w = 100, .energy_j = counter_j.at(n_read++)}; };
  }
  std::function<double()> clock() {
    return [this] { return now_s; };
  }
};

// Joules of the phases "a", "b", ... between readings of the counter.
std::vector<double> phase_energies(const std::vector<double>& counter_j) {
  ScriptedGpu gpu{.counter_j = counter_j};
  GpuSampler sampler(gpu.read(), gpu.clock(), kNever);
  for (size_t i = 0; i + 1 < counter_j.size(); ++i) sampler.begin(std::string(1, static_cast<char>('a' + i)));
  sampler.stop();
  EXPECT_TRUE(sampler.from_counter());
  std::vector<double> joules;
  for (const PhaseEnergy& p : sampler.energies()) joules.push_back(p.joules);
  return joules;
}

TEST(GpuSampler, APhaseHasTheEnergyBetweenItsEnds) {
  ScriptedGpu gpu{.counter_j = {1000, 1250, 1900}};
  GpuSampler sampler(gpu.read(), gpu.clock(), kNever);
  sampler.begin("load");
  gpu.now_s = 3;
  sampler.begin("run");
  gpu.now_s = 7;
  sampler.stop();
  sampler.stop();  // again is nothing
  ASSERT_EQ(sampler.energies().size(), 2u);
  EXPECT_EQ(sampler.energies()[0].phase, "load");
  EXPECT_EQ(sampler.energies()[0].joules, 250);
  EXPECT_EQ(sampler.energies()[1].phase, "run");
  EXPECT_EQ(sampler.energies()[1].joules, 650);
  const std::vector<GpuSample> samples = sampler.take_samples();
  ASSERT_EQ(samples.size(), 3u);
  EXPECT_EQ(samples[0].reading.energy_j, 0) << "not since the driver was loaded";
  EXPECT_EQ(samples[2].reading.energy_j, 900);
  EXPECT_EQ(samples[2].reading.power_w, 100);
  EXPECT_EQ(samples[1].time_s, 3);
  EXPECT_EQ(samples[2].time_s, 7);
  EXPECT_TRUE(sampler.take_samples().empty()) << "they are taken once";
}

TEST(GpuSampler, ACounterThatFailsOnceIsBelievedAgain) {
  const std::vector<double> joules = phase_energies({10, kNan, 30, 70});
  ASSERT_EQ(joules.size(), 3u);
  EXPECT_THAT(joules[0], IsNan());
  EXPECT_THAT(joules[1], IsNan());
  EXPECT_EQ(joules[2], 40);
}

TEST(GpuSampler, ACounterThatGoesBackIsNotBelievedAgain) {
  const std::vector<double> joules = phase_energies({10, 30, 5, 90});
  EXPECT_EQ(joules[0], 20);
  EXPECT_THAT(joules[1], IsNan());
  EXPECT_THAT(joules[2], IsNan());
  EXPECT_THAT(phase_energies({10, 30, kNan, 5, 90}).at(3), IsNan()) << "while it said nothing";
}

TEST(EnergySum, FromPowerUntilOneIsMissing) {
  EnergySum sum;
  EXPECT_EQ(sum.add(1, {.power_w = 100}), 0);
  EXPECT_EQ(sum.add(2, {.power_w = 300}), 200);
  EXPECT_EQ(sum.add(2, {.power_w = 300}), 200);
  EXPECT_THAT(sum.add(3, {}), IsNan());
  EXPECT_THAT(sum.add(4, {.power_w = 300}), IsNan());
  EXPECT_THAT(EnergySum().add(0, {}), IsNan()) << "a GPU that says nothing took not nothing";
}

TEST(GpuSampler, ReadsOnItsOwnAndInOrder) {
  std::atomic<int> n_read = 0;
  GpuSampler sampler([&] { return GpuReading{.energy_j = static_cast<double>(n_read++)}; },
                     [&] { return static_cast<double>(n_read); }, 1e-3);
  sampler.begin("run");
  std::vector<GpuSample> samples;
  while (samples.size() < 20)
    for (const GpuSample& s : sampler.take_samples()) samples.push_back(s);
  sampler.stop();
  for (const GpuSample& s : sampler.take_samples()) samples.push_back(s);
  EXPECT_EQ(samples.size(), static_cast<size_t>(n_read));
  for (size_t i = 0; i < samples.size(); ++i) {
    EXPECT_EQ(samples[i].time_s, static_cast<double>(i));
    EXPECT_EQ(samples[i].reading.energy_j, static_cast<double>(i));
  }
  const int n = n_read;
  EXPECT_EQ(sampler.energies().at(0).joules, n - 1);
}

TEST(GpuSampler, EndsWithoutWaitingForItsSecond) {
  ScriptedGpu gpu{.counter_j = {1, 2, 3}};
  {
    GpuSampler sampler(gpu.read(), gpu.clock(), kNever), other({}, gpu.clock(), kNever);
    sampler.begin("run");
  }
  EXPECT_EQ(gpu.n_read, 2u);
}

TEST(GpuSampler, WithoutAGpuNothingHappens) {
  GpuSampler sampler({}, [] { return 0.0; });
  sampler.begin("load"), sampler.begin("run"), sampler.stop();
  EXPECT_TRUE(sampler.energies().empty());
  EXPECT_TRUE(sampler.take_samples().empty());
}

GpuEnergy of_rank(const std::string& gpu, double load_j, double run_j) {
  return {.gpu = gpu, .from_counter = true, .phases = {{"load", load_j}, {"run", run_j}}};
}

TEST(TotalEnergy, IsTheSumOverGpus) {
  const std::vector<GpuEnergy> ranks = {of_rank("n1 0000:1b:00.0", 1, 10), of_rank("n1 0000:43:00.0", 2, 20),
                                        of_rank("n2 0000:1b:00.0", 4, 40)};
  const EnergyRecord total = total_energy(ranks);
  EXPECT_EQ(total.n_gpus, 3);
  EXPECT_TRUE(total.from_counter);
  ASSERT_EQ(total.phases.size(), 2u);
  EXPECT_EQ(total.phases[0].joules, 7);
  EXPECT_EQ(total.phases[1].joules, 70);
}

TEST(TotalEnergy, AGpuThatRanksShareCountsOnce) {
  const std::vector<GpuEnergy> ranks = {of_rank("n1 0000:1b:00.0", 1, 10), of_rank("n1 0000:1b:00.0", 1, 10)};
  const EnergyRecord total = total_energy(ranks);
  EXPECT_EQ(total.n_gpus, 1);
  EXPECT_EQ(total.phases.at(1).joules, 10);
}

TEST(TotalEnergy, APartIsNoWhole) {
  EXPECT_EQ(total_energy({}).n_gpus, 0);
  std::vector<GpuEnergy> ranks = {of_rank("a", 1, 10), {}};
  EXPECT_EQ(total_energy(ranks).n_gpus, 0) << "one rank measured nothing";
  ranks[1] = of_rank("", 1, 10);
  EXPECT_EQ(total_energy(ranks).n_gpus, 0) << "of no GPU";
  ranks[1] = of_rank("b", kNan, 20);
  ranks[1].from_counter = false;
  EnergyRecord total = total_energy(ranks);
  EXPECT_EQ(total.n_gpus, 2);
  EXPECT_FALSE(total.from_counter);
  ASSERT_EQ(total.phases.size(), 1u) << "load is unknown of one";
  EXPECT_EQ(total.phases[0].joules, 30);
  ranks[1] = {.gpu = "b", .phases = {{"load", 1}}};
  total = total_energy(ranks);
  ASSERT_EQ(total.phases.size(), 1u) << "run is unknown of one";
  EXPECT_EQ(total.phases[0].phase, "load");
  ranks[1] = of_rank("b", kNan, kNan);
  EXPECT_EQ(total_energy(ranks).n_gpus, 0);
}

TEST(TotalEnergy, TravelsBetweenRanks) {
  ByteWriter w;
  put(w, of_rank("n1 0000:1b:00.0", 1.5, 10));
  ByteReader r(w.bytes());
  const GpuEnergy e = get_gpu_energy(r);
  EXPECT_EQ(e.gpu, "n1 0000:1b:00.0");
  EXPECT_TRUE(e.from_counter);
  ASSERT_EQ(e.phases.size(), 2u);
  EXPECT_EQ(e.phases[0].phase, "load");
  EXPECT_EQ(e.phases[0].joules, 1.5);
}

}  // namespace
}  // namespace lockstep
