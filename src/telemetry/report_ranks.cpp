#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <set>

#include "telemetry/report_axis.h"
#include "telemetry/report_bins.h"
#include "telemetry/report_data.h"

namespace lockstep {

std::vector<size_t> evenly_chosen(const std::vector<double>& values, size_t n_wanted) {
  std::set<size_t> chosen;
  const size_t n = values.size();
  n_wanted = std::min(n, n_wanted);
  for (size_t i = 0; i < n_wanted; ++i) chosen.insert(i * n / n_wanted);
  if (n > n_wanted) {
    const auto [least, most] = std::ranges::minmax_element(values);
    for (const auto found : {least, most}) {
      const auto index = static_cast<size_t>(found - values.begin());
      if (!chosen.insert(index).second) continue;
      chosen.erase(*chosen.begin() == index ? std::next(chosen.begin()) : chosen.begin());
    }
  }
  return {chosen.begin(), chosen.end()};
}

void reduce_ranks(const Timings& timings, const Axis& axis, ReportData& data) {
  std::set<int> known;
  for (const auto& [rank, steps] : timings.steps) known.insert(rank);
  for (const Timings::Phase& p : timings.phases) known.insert(p.rank);
  data.totals.n_ranks = static_cast<int64_t>(known.size());
  const std::vector<int> ranks(known.begin(), known.end());
  static const std::vector<Timings::Step> kNone;
  const auto steps_of = [&](int rank) -> const std::vector<Timings::Step>& {
    const auto found = timings.steps.find(rank);
    return found == timings.steps.end() ? kNone : found->second;
  };
  std::vector<double> compute_s(ranks.size());
  for (size_t i = 0; i < ranks.size(); ++i)
    for (const auto& step : steps_of(ranks[i]))
      if (is_usable(step.timing) && std::isfinite(step.timing.compute_s())) compute_s[i] += step.timing.compute_s();

  const TimeSums empty(0, axis.end_s(), ReportData::kTimeSlices);
  data.rank_slice_s = empty.width_s();
  std::map<int, size_t> shown;
  for (const size_t i : evenly_chosen(compute_s, ReportData::kMaxRanks)) {
    ReportData::Rank r{.rank = ranks[i]};
    TimeSums compute = empty, communication = empty, waiting = empty;
    for (const auto& step : steps_of(r.rank)) {
      const StepTiming& t = step.timing;
      if (!is_usable(t)) continue;
      r.place = timings.place_of(step.attempt, r.rank);
      // Measured apart, so a little may be over: the parts are those of the whole.
      const double wait = std::isnan(t.wait_s) ? 0 : std::clamp(t.wait_s, 0.0, t.duration_s);
      const double comm = std::isnan(t.comm_s) ? 0 : std::clamp(t.comm_s - wait, 0.0, t.duration_s - wait);
      const double rest = t.duration_s - wait - comm;
      const double from_s = axis.joined(step.attempt, t.start_s), to_s = from_s + t.duration_s;
      compute.spread(from_s, to_s, rest), r.compute_s += rest;
      communication.spread(from_s, to_s, comm), r.communication_s += comm;
      waiting.spread(from_s, to_s, wait), r.waiting_s += wait;
    }
    r.compute = compute.values(), r.communication = communication.values(), r.waiting = waiting.values();
    for (auto* values : {&r.compute, &r.communication, &r.waiting})
      for (double& v : *values) v = std::min(1.0, v / empty.width_s());
    shown.emplace(r.rank, data.ranks.size());
    data.ranks.push_back(std::move(r));
  }
  std::map<Timings::Seat, double> ends;
  for (const Timings::Phase& p : timings.phases) {
    if (!is_usable(p)) continue;
    double& end_s = ends[{p.attempt, p.rank}];
    const double begin_s = end_s;
    end_s += p.timing.seconds;
    const auto found = shown.find(p.rank);
    if (found == shown.end()) continue;
    auto& phases = data.ranks[found->second].phases;
    constexpr size_t kMaxPhases = 400;  // four of a hundred attempts
    if (phases.size() < kMaxPhases)
      phases.push_back({p.timing.name, axis.joined(p.attempt, begin_s), axis.joined(p.attempt, end_s)});
  }
}

void reduce_tail(const Timings& timings, const Axis& axis, ReportData& data) {
  std::vector<const RequestTiming*> done;
  for (const RequestTiming& r : timings.requests)
    if (is_usable(r) && is_time(r.done_s) && is_time(r.admitted_s)) done.push_back(&r);
  const auto end_of = [&](const RequestTiming* r) { return axis.joined(r->attempt, r->done_s); };
  std::ranges::stable_sort(done, {}, end_of);
  if (done.empty()) return;

  const size_t n_late = std::min(done.size() - 1, std::max<size_t>(ReportData::kLastRequests, done.size() / 20));
  ReportData::Tail& tail = data.tail;
  const double attempt_begin_s = axis.joined(done.back()->attempt, 0);
  tail.end_s = end_of(done.back());
  const double tenth_s = (tail.end_s - attempt_begin_s) / 10;
  tail.begin_s = std::max(attempt_begin_s, std::min(end_of(done[done.size() - 1 - n_late]), tail.end_s - tenth_s));
  if (tail.begin_s >= tail.end_s) tail.begin_s = std::max(0.0, tail.end_s - 1);

  for (size_t i = done.size() - std::min<size_t>(done.size(), ReportData::kLastRequests); i < done.size(); ++i) {
    const RequestTiming& r = *done[i];
    tail.last.push_back({.custom_id = r.custom_id,
                         .finish_reason = r.finish_reason,
                         .line = r.line,
                         .replica = r.replica,
                         .n_prompt = r.n_prompt,
                         .n_generated = r.n_generated,
                         .admitted_s = axis.joined(r.attempt, r.admitted_s),
                         .first_token_s = is_time(r.first_token_s) ? axis.joined(r.attempt, r.first_token_s) : -1,
                         .done_s = end_of(done[i])});
  }
  Levels sequences(tail.begin_s, tail.end_s, ReportData::kTailSlices);
  for_each_replica_step(timings, axis, [&](const Timings::Step& step, double start_s, int32_t replica) {
    const StepTiming& t = step.timing;
    if (start_s <= tail.end_s && start_s + t.duration_s >= tail.begin_s)
      sequences.add(replica, start_s, start_s + t.duration_s, std::max(0, t.n_seqs));
  });
  std::vector<ReportData::Tail::Active> active;
  for (auto& [replica, values] : sequences.by_replica()) {
    for (double& v : values) v = std::max(0.0, v);  // a replica that has nothing to do
    active.push_back({replica, values});
  }
  const auto work = [](const auto& a) { return std::accumulate(a.sequences.begin(), a.sequences.end(), 0.0); };
  std::ranges::stable_sort(active, std::greater(), work);
  active.resize(std::min<size_t>(active.size(), ReportData::kMaxReplicas));
  std::ranges::sort(active, {}, &ReportData::Tail::Active::replica);
  tail.active = std::move(active);
}

}  // namespace lockstep
