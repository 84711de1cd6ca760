// Timings while the run goes: each rank appends small checked records to a file of its own under OUT/journal/timings, so that a
// kill loses at most the last buffer and an HDF5 file is never open for writing. A fault here never fails the run: it is said
// once.
//   RawTimings raw(out_dir, epoch, rank); raw.add(step_timing); ...   Timings all = read_timings(out_dir);
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "telemetry/timing_records.h"

namespace lockstep {

class RawTimings {
 public:
  RawTimings(const std::string& out_dir, int64_t epoch, int rank);
  ~RawTimings();
  RawTimings(const RawTimings&) = delete;
  RawTimings& operator=(const RawTimings&) = delete;

  void add(const RequestTiming& request);
  void add(const StepTiming& step);
  void add(const PhaseTiming& phase);
  void flush();

 private:
  void append(std::span<const std::byte> payload);

  std::string path_;
  int fd_ = -1;
  std::vector<std::byte> buffer_;
};

struct Timings {
  struct Step {
    int32_t attempt = 0;
    StepTiming timing;
  };
  struct Phase {
    int32_t attempt = 0, rank = 0;
    PhaseTiming timing;
  };
  std::vector<RequestTiming> requests;     // one a line, by line number: the attempt that counts is the last one
  std::map<int, std::vector<Step>> steps;  // by rank, in order of attempts
  std::vector<Phase> phases;
  int64_t n_damaged = 0;  // files that end in a torn record
};

Timings read_timings(const std::string& out_dir);

// Forgets the timings of earlier runs in this directory (--overwrite).
void remove_timings(const std::string& out_dir);

}  // namespace lockstep
