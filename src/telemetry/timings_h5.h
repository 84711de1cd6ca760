// timings.h5: what the run measured, as equal-length one-dimensional datasets with `units`, `long_name` and dimension scales,
// so that h5py, pandas and xarray read it without code of ours.
//   /requests        one row a line: line, custom_id, attempt, replica, seconds, tokens, finish reason
//   /steps/rank_N    one row a step: start, duration, tokens, sequences, pages, seconds in compute, communication, waiting
//   /phases          open, load, run, merge: seconds by rank and attempt
#pragma once

#include <string>

#include "telemetry/raw_timings.h"

namespace lockstep {

// Writes to a temporary name, reopens to verify, then renames. Throws Error (output_io); the caller warns and goes on.
void write_timings_h5(const std::string& path, const Timings& timings);

}  // namespace lockstep
