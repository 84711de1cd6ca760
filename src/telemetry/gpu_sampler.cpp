#include "telemetry/gpu_sampler.h"

#include <chrono>
#include <cmath>
#include <utility>

namespace lockstep {

double EnergySum::add(double time_s, const GpuReading& r) {
  if (!std::exchange(started_, true)) {
    from_counter_ = !std::isnan(r.energy_j);
    first_j_ = last_j_ = r.energy_j;
    last_s_ = time_s, last_w_ = r.power_w;
    return from_counter_ || !std::isnan(r.power_w) ? 0 : GpuReading::kUnknown;
  }
  if (from_counter_) {
    went_back_ = went_back_ || r.energy_j < last_j_;  // the driver was loaded anew: what was before is lost
    if (!std::isnan(r.energy_j)) last_j_ = r.energy_j;
    return went_back_ ? GpuReading::kUnknown : r.energy_j - first_j_;
  }
  sum_j_ += (time_s - std::exchange(last_s_, time_s)) * (r.power_w + std::exchange(last_w_, r.power_w)) / 2;
  return sum_j_;  // NaN from the first gap on
}

GpuSampler::GpuSampler(ReadGpu read, std::function<double()> now_s, double interval_s)
    : read_(std::move(read)), now_s_(std::move(now_s)), interval_s_(interval_s) {}

GpuSampler::~GpuSampler() { stop(); }

void GpuSampler::begin(const std::string& phase) {
  if (!read_) return;
  const double energy_j = sample();
  end_phase(energy_j);
  phase_ = phase;
  phase_began_j_ = energy_j;
  if (!thread_.joinable()) thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

void GpuSampler::stop() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
  end_phase(sample());
}

std::vector<GpuSample> GpuSampler::take_samples() {
  const std::lock_guard lock(waiting_);
  return std::exchange(samples_, {});
}

double GpuSampler::sample() {
  const std::lock_guard lock(reading_);  // until the sample is in its place: they are in order
  GpuSample s{.time_s = now_s_(), .reading = read_()};
  s.reading.energy_j = energy_.add(s.time_s, s.reading);
  const std::lock_guard push(waiting_);
  samples_.push_back(s);
  return s.reading.energy_j;
}

void GpuSampler::end_phase(double energy_j) {
  if (!phase_.empty()) energies_.push_back({std::exchange(phase_, {}), energy_j - phase_began_j_});
}

void GpuSampler::run(const std::stop_token& stop) {
  const auto interval = std::chrono::duration<double>(interval_s_);
  for (;;) {
    {
      std::unique_lock lock(waiting_);
      wake_.wait_for(lock, stop, interval, [] { return false; });
    }
    if (stop.stop_requested()) return;
    sample();
  }
}

}  // namespace lockstep
