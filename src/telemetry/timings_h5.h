// timings.h5: what the run measured, as equal-length one-dimensional datasets with `units`, `long_name` and dimension scales,
// so that h5py, pandas and xarray read it without code of ours.
//   /requests        one row a line: line, custom_id, attempt, replica, seconds, tokens, finish reason
//   /steps/rank_N    one row a step: start, duration, tokens, sequences, pages, seconds in compute, communication, waiting
//   /gpu/rank_N      one row a second of a rank with a GPU: power, temperature, clocks, utilisation, memory, energy
//   /phases          open, load, run, merge: start and seconds by rank and attempt
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "telemetry/raw_timings.h"

namespace lockstep {

// The rows of /requests from somewhere else than Timings::requests: asked for in slices, one after the other.
struct RequestSource {
  size_t n_rows = 0;
  std::function<std::vector<RequestTiming>(size_t begin, size_t end)> rows;
};

// Writes to a temporary name, reopens to verify, then renames. Throws Error (output_io); the caller warns and goes on.
void write_timings_h5(const std::string& path, const Timings& timings);
void write_timings_h5(const std::string& path, const Timings& timings, const RequestSource& requests);

// Throws Error (unreadable) with the path: missing, cut short, damaged, or not what is described above. The file is taken for
// hostile: nothing outside of it is read, and no more memory taken than a file of its size can need.
Timings read_timings_h5(const std::string& path);

}  // namespace lockstep
