#include "telemetry/report_axis.h"

#include <algorithm>
#include <cmath>

namespace lockstep {

bool is_usable(const StepTiming& t) { return is_time(t.start_s) && is_time(t.duration_s); }

bool is_usable(const RequestTiming& t) {
  for (const double s : {t.admitted_s, t.first_token_s, t.done_s})
    if (!std::isnan(s) && !is_time(s)) return false;
  return true;
}

bool is_usable(const Timings::Phase& p) { return is_time(p.timing.seconds); }

bool is_usable(const GpuSample& s) { return is_time(s.time_s); }

Axis::Axis(const Timings& timings) {
  for (const auto& [rank, steps] : timings.steps)
    for (const auto& step : steps)
      if (is_usable(step.timing)) extend(step.attempt, step.timing.start_s + step.timing.duration_s);
  for (const RequestTiming& r : timings.requests)
    if (is_usable(r) && is_time(r.done_s)) extend(r.attempt, r.done_s);
  for (const auto& [rank, rows] : timings.gpus)
    for (const Timings::Gpu& row : rows)
      if (is_usable(row.sample)) extend(row.attempt, row.sample.time_s);
  std::map<Timings::Seat, double> phase_ends;
  for (const Timings::Phase& p : timings.phases)
    if (is_usable(p)) extend(p.attempt, phase_ends[{p.attempt, p.rank}] += p.timing.seconds);
  double at_s = 0;
  for (auto& [attempt, span] : spans_) {
    span.begin_s = at_s;
    at_s = span.end_s += at_s;
  }
  end_s_ = at_s > 0 ? at_s : 1;
}

std::vector<ReportData::Attempt> Axis::attempts() const {
  std::vector<ReportData::Attempt> all;
  for (const auto& [number, span] : spans_) all.push_back({number, span.begin_s, span.end_s});
  return all;
}

void Axis::extend(int32_t attempt, double end_s) {
  Span& span = spans_[attempt];
  span.end_s = std::max(span.end_s, end_s);
}

bool Speakers::speaks(int32_t attempt, int rank) {
  if (attempt == attempt_ && rank == rank_) return speaks_;
  attempt_ = attempt, rank_ = rank;
  replica_ = timings_.place_of(attempt, rank).replica;
  speaks_ = speakers_.emplace(std::pair(attempt, replica_), rank).first->second == rank;
  return speaks_;
}

void Levels::add(int32_t replica, double from_s, double to_s, double level) {
  auto found = replicas_.find(replica);
  if (found == replicas_.end())
    found = replicas_.emplace(replica, Replica{empty_, empty_, std::vector<double>(empty_.n_slices(), -1)}).first;
  Replica& r = found->second;
  r.weighted.spread(from_s, to_s, level * (to_s - from_s));
  r.time.spread(from_s, to_s, to_s - from_s);
  for (const int slice : {empty_.slice_of(from_s), empty_.slice_of(to_s)}) r.peak[slice] = std::max(r.peak[slice], level);
}

void Levels::reduce(std::vector<double>& mean, std::vector<double>& peak) const {
  const auto n = static_cast<size_t>(empty_.n_slices());
  mean.assign(n, -1), peak.assign(n, -1);
  std::vector<double> sum(n), count(n);
  for (const auto& [replica, r] : replicas_) {
    const std::vector<double> levels = means(r);
    for (size_t i = 0; i < n; ++i) {
      if (levels[i] < 0) continue;
      sum[i] += levels[i], ++count[i];
      peak[i] = std::max({peak[i], levels[i], r.peak[i]});
    }
  }
  for (size_t i = 0; i < n; ++i)
    if (count[i] > 0) mean[i] = sum[i] / count[i];
}

std::map<int32_t, std::vector<double>> Levels::by_replica() const {
  std::map<int32_t, std::vector<double>> all;
  for (const auto& [replica, r] : replicas_) all.emplace(replica, means(r));
  return all;
}

std::vector<double> Levels::means(const Replica& r) const {
  std::vector<double> levels = r.weighted.values();
  const std::vector<double> time = r.time.values();
  for (size_t i = 0; i < levels.size(); ++i) levels[i] = time[i] > 1e-9 * empty_.width_s() ? levels[i] / time[i] : -1;
  return levels;
}

}  // namespace lockstep
