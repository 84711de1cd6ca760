// Timings while the run goes: each rank appends small checked records to a file of its own under OUT/journal/timings, so that a
// kill loses no finished request and at most a second of steps, and an HDF5 file is never open for writing. A fault here never
// fails the run: it is said once.
//   RawTimings raw(out_dir, epoch, rank); raw.add(step_timing); ...   Timings all = read_timings(out_dir);
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
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
  void add(const RankPlace& place);
  void add(std::span<const GpuSample> samples);
  void flush();

 private:
  void append(std::span<const std::byte> payload);

  std::string path_;
  int fd_ = -1;
  std::vector<std::byte> buffer_;
  double flushed_s_ = 0;  // start of the step that was flushed last
};

struct Timings {
  struct Step {
    int32_t attempt = 0;
    StepTiming timing;
  };
  struct Gpu {
    int32_t attempt = 0;
    GpuSample sample;
  };
  struct Phase {
    int32_t attempt = 0, rank = 0;
    PhaseTiming timing;
  };
  struct Seat {
    int32_t attempt = 0, rank = 0;
    auto operator<=>(const Seat&) const = default;
  };
  std::vector<RequestTiming> requests;     // one a custom_id, by line number: the attempt that counts is the last one
  std::map<int, std::vector<Step>> steps;  // by rank, in order of attempts
  std::map<int, std::vector<Gpu>> gpus;    // likewise; only ranks whose GPU was measured
  std::vector<Phase> phases;               // those of a rank and attempt follow each other from its start on
  std::map<Seat, RankPlace> places;
  int64_t n_damaged = 0;  // files that end in a torn record

  RankPlace place_of(int32_t attempt, int32_t rank) const;
};

// The raw files of a directory, for a run whose finished requests are too many to hold: their places are kept, and they are
// read again where they are wanted.
//   RawTimingsReader raw(out_dir);   Timings rest = raw.read([&](const RequestTiming& t, RawPlace place) { ... });
struct RawPlace {
  uint64_t file : 20 = 0;  // counted from 1; 0: nowhere
  uint64_t offset : 44 = 0;
  bool known() const { return file != 0; }
};

class RawTimingsReader {
 public:
  explicit RawTimingsReader(const std::string& out_dir);

  // All attempts, killed ones up to their last whole record. Requests go to on_request, the older attempts first.
  Timings read(const std::function<void(RequestTiming&&, RawPlace)>& on_request) const;

  // In the order of `places`, all known. Throws Error where a record is no longer there.
  std::vector<RequestTiming> requests_at(std::span<const RawPlace> places) const;

 private:
  std::vector<std::string> paths_;
  std::vector<std::pair<int, int>> seats_;  // attempt and rank of each
};

// All at once.
Timings read_timings(const std::string& out_dir);

// The newest attempt that has raw records here; 0: none has.
int32_t last_raw_attempt(const std::string& out_dir);

// Forgets the timings of earlier runs in this directory (--overwrite).
void remove_timings(const std::string& out_dir);

}  // namespace lockstep
