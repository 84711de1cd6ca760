// Reads a rank's GPU once a second while the run goes: one thread, which mostly sleeps, and which talks to nobody. The samples
// wait here until the rank's own thread takes them, since raw timings are for one thread. Phases get their energy from the
// samples taken at their ends.
//   GpuSampler sampler(read, now_s); sampler.begin("load"); ... sampler.begin("run"); timings.add(sampler.take_samples()); ...
//   sampler.stop(); for (auto& [phase, joules] : sampler.energies()) ...
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "telemetry/nvml.h"
#include "telemetry/timing_records.h"

namespace lockstep {

// The energy since the first reading, by the GPU's counter; where it has none, by its power (trapezoids).
class EnergySum {
 public:
  double add(double time_s, const GpuReading& reading);  // joules; NaN: unknown
  bool from_counter() const { return from_counter_; }

 private:
  bool started_ = false, from_counter_ = false, went_back_ = false;
  double first_j_ = 0, last_j_ = 0;             // of the counter
  double sum_j_ = 0, last_s_ = 0, last_w_ = 0;  // without one
};

class GpuSampler {
 public:
  // read: empty where there is no GPU to measure; then nothing happens and no thread is started. now_s is called by the thread.
  GpuSampler(ReadGpu read, std::function<double()> now_s, double interval_s = 1);
  ~GpuSampler();  // stops
  GpuSampler(const GpuSampler&) = delete;
  GpuSampler& operator=(const GpuSampler&) = delete;

  void begin(const std::string& phase);  // ends the one before it
  void stop();                           // ends the phase and the thread, which doesn't finish its second

  std::vector<GpuSample> take_samples();                                  // since the last call, in order of time
  const std::vector<PhaseEnergy>& energies() const { return energies_; }  // of the phases that ended; NaN: unknown
  bool from_counter() const { return energy_.from_counter(); }            // once it has stopped

 private:
  double sample();  // the energy so far
  void end_phase(double energy_j);
  void run(const std::stop_token& stop);

  ReadGpu read_;
  std::function<double()> now_s_;
  double interval_s_;
  std::string phase_;
  double phase_began_j_ = 0;
  std::vector<PhaseEnergy> energies_;

  std::mutex reading_;  // held while the GPU is asked: milliseconds
  EnergySum energy_;    // by reading_
  std::mutex waiting_;  // held for no longer than a push takes
  std::condition_variable_any wake_;
  std::vector<GpuSample> samples_;  // by waiting_
  std::jthread thread_;             // last: it uses the others
};

}  // namespace lockstep
