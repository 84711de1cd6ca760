#include "telemetry/energy.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace lockstep {

void put(ByteWriter& w, const GpuEnergy& energy) {
  w.put_string(energy.gpu);
  w.put(energy.from_counter);
  w.put(static_cast<uint32_t>(energy.phases.size()));
  for (const PhaseEnergy& p : energy.phases) {
    w.put_string(p.phase);
    w.put(p.joules);
  }
}

GpuEnergy get_gpu_energy(ByteReader& r) {
  GpuEnergy energy{.gpu = r.get_string(), .from_counter = r.get<bool>()};
  for (auto n = r.get<uint32_t>(); n > 0; --n) {
    std::string phase = r.get_string();
    energy.phases.push_back({std::move(phase), r.get<double>()});
  }
  return energy;
}

EnergyRecord total_energy(std::span<const GpuEnergy> ranks) {
  EnergyRecord total{.from_counter = true};
  std::set<std::string> counted;
  for (const GpuEnergy& rank : ranks) {
    if (rank.gpu.empty()) return {};
    if (!counted.insert(rank.gpu).second) continue;
    total.from_counter = total.from_counter && rank.from_counter;
    if (counted.size() == 1) {
      total.phases = rank.phases;
      continue;
    }
    for (PhaseEnergy& sum : total.phases) {
      const auto mine = std::ranges::find(rank.phases, sum.phase, &PhaseEnergy::phase);
      sum.joules += mine != rank.phases.end() ? mine->joules : GpuReading::kUnknown;
    }
  }
  std::erase_if(total.phases, [](const PhaseEnergy& p) { return std::isnan(p.joules); });
  if (total.phases.empty()) return {};
  total.n_gpus = static_cast<int>(counted.size());
  return total;
}

}  // namespace lockstep
