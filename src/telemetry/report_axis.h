// What the reductions for report.html share: which rows are usable, where an attempt lies on the time axis, whose steps stand
// for a replica, and a level over time. Internal to telemetry.
//   const Axis axis(timings);   for_each_replica_step(timings, axis, [&](const Timings::Step& s, double start_s, int32_t
//   replica) {...});
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "telemetry/raw_timings.h"
#include "telemetry/report_bins.h"
#include "telemetry/report_data.h"

namespace lockstep {

// 0 to 30 years of seconds, and no NaN: what lies beyond is damage.
inline bool is_time(double s) { return s >= 0 && s <= 1e9; }

bool is_usable(const StepTiming& step);
bool is_usable(const RequestTiming& request);  // NaN is a time that never was; anything else must be one
bool is_usable(const Timings::Phase& phase);
bool is_usable(const GpuSample& sample);

// The attempts one after the other: each has a clock of its own.
class Axis {
 public:
  explicit Axis(const Timings& timings);

  // A time of a usable row. The attempt is one that has such a row.
  double joined(int32_t attempt, double s) const { return spans_.at(attempt).begin_s + s; }
  double end_s() const { return end_s_; }
  std::vector<ReportData::Attempt> attempts() const;

 private:
  struct Span {
    double begin_s = 0, end_s = 0;
  };
  void extend(int32_t attempt, double end_s);
  std::map<int32_t, Span> spans_;
  double end_s_ = 1;
};

// The ranks whose steps stand for their replica: of each attempt and replica the lowest. Asked in order of ranks.
class Speakers {
 public:
  explicit Speakers(const Timings& timings) : timings_(timings) {}
  bool speaks(int32_t attempt, int rank);
  int32_t replica() const { return replica_; }  // of the last question

 private:
  const Timings& timings_;
  std::map<std::pair<int32_t, int32_t>, int> speakers_;  // rank by attempt and replica
  int32_t attempt_ = -1, replica_ = -1;
  int rank_ = -1;
  bool speaks_ = false;
};

// visit(step, joined start, replica) for the usable steps of every replica, once each.
template <class Visit>
void for_each_replica_step(const Timings& timings, const Axis& axis, const Visit& visit) {
  Speakers speakers(timings);
  for (const auto& [rank, steps] : timings.steps)
    for (const Timings::Step& step : steps)
      if (is_usable(step.timing) && speakers.speaks(step.attempt, rank))
        visit(step, axis.joined(step.attempt, step.timing.start_s), speakers.replica());
}

// A quantity of each replica over time (pages, sequences): its mean and peak in each slice of time; -1 where there was no step.
class Levels {
 public:
  Levels(double begin_s, double end_s, int n_slices) : empty_(begin_s, end_s, n_slices) {}

  void add(int32_t replica, double from_s, double to_s, double level);

  // Mean of the replicas' means, and the highest peak.
  void reduce(std::vector<double>& mean, std::vector<double>& peak) const;
  std::map<int32_t, std::vector<double>> by_replica() const;  // the means

 private:
  struct Replica {
    TimeSums weighted, time;
    std::vector<double> peak;
  };
  std::vector<double> means(const Replica& replica) const;
  TimeSums empty_;
  std::map<int32_t, Replica> replicas_;
};

// Indices of at most n_wanted values: all of them, or evenly chosen ones and the two that stand out.
std::vector<size_t> evenly_chosen(const std::vector<double>& values, size_t n_wanted);

// Parts of the reduction, each of which fills its fields of `data`.
void reduce_steps(const Timings& timings, const Axis& axis, ReportData& data);
void reduce_requests(const Timings& timings, ReportData& data);
void reduce_ranks(const Timings& timings, const Axis& axis, ReportData& data);
void reduce_gpus(const Timings& timings, const Axis& axis, ReportData& data);
void reduce_tail(const Timings& timings, const Axis& axis, ReportData& data);

}  // namespace lockstep
