// The energy of a run: what the GPUs of its ranks took by phase, each GPU once. Not for measuring (gpu_sampler).
//   EnergyRecord energy = total_energy(of_all_ranks);   if (energy.n_gpus > 0) ...
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "telemetry/timing_records.h"

namespace lockstep {

struct GpuEnergy {  // as one rank measured it
  std::string gpu;  // host and bus id; empty: this rank measured none
  bool from_counter = false;
  std::vector<PhaseEnergy> phases;  // NaN: unknown
};
void put(ByteWriter& w, const GpuEnergy& energy);
GpuEnergy get_gpu_energy(ByteReader& r);

struct EnergyRecord {
  int n_gpus = 0;                   // 0: not measured
  bool from_counter = false;        // of every GPU; else from the power of at least one
  std::vector<PhaseEnergy> phases;  // sums over the GPUs, of the phases that are known of all of them
};

// Not measured if a rank measured nothing: a part of the sum would pass for the whole. Ranks that share a GPU count it once.
EnergyRecord total_energy(std::span<const GpuEnergy> ranks);

}  // namespace lockstep
