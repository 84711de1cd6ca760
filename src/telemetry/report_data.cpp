#include "telemetry/report_data.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "telemetry/report_axis.h"
#include "telemetry/report_bins.h"

namespace lockstep {

void reduce_steps(const Timings& timings, const Axis& axis, ReportData& data) {
  TimeSums in(0, axis.end_s(), ReportData::kTimeSlices), out = in;
  Levels pages(0, axis.end_s(), ReportData::kTimeSlices), sequences = pages;
  std::map<std::pair<int, int>, std::vector<float>> classes;  // by kind and size
  std::set<int32_t> replicas;
  std::map<int32_t, std::pair<double, double>> busy;  // by attempt: its first step's start, its last one's end
  for_each_replica_step(timings, axis, [&](const Timings::Step& step, double start_s, int32_t replica) {
    const StepTiming& t = step.timing;
    const double end_s = start_s + t.duration_s;
    const int64_t n_in = std::max(0, t.n_prefill_tokens), n_out = std::max(0, t.n_decode_tokens);
    in.spread(start_s, end_s, static_cast<double>(n_in));
    out.spread(start_s, end_s, static_cast<double>(n_out));
    pages.add(replica, start_s, end_s, static_cast<double>(std::max<int64_t>(0, t.n_pages)));
    sequences.add(replica, start_s, end_s, std::max(0, t.n_seqs));
    if (n_in + n_out > 0) {
      const int kind = n_out == 0 ? 0 : n_in == 0 ? 1 : 2;
      classes[{kind, size_class(n_in + n_out)}].push_back(static_cast<float>(t.duration_s));
    }
    replicas.insert(replica);
    data.totals.prefill_tokens += static_cast<double>(n_in);
    data.totals.decode_tokens += static_cast<double>(n_out);
    ++data.totals.n_steps;
    auto& span = busy.try_emplace(step.attempt, start_s, end_s).first->second;
    span = {std::min(span.first, start_s), std::max(span.second, end_s)};
  });
  for (const auto& [attempt, span] : busy) data.totals.busy_s += span.second - span.first;
  data.totals.n_replicas = static_cast<int64_t>(replicas.size());

  ReportData::OverTime& o = data.over_time;
  o.slice_s = in.width_s();
  o.in_tokens_per_s = in.values(), o.out_tokens_per_s = out.values();
  for (double& tokens : o.in_tokens_per_s) tokens /= o.slice_s;
  for (double& tokens : o.out_tokens_per_s) tokens /= o.slice_s;
  pages.reduce(o.pages_mean, o.pages_max);
  sequences.reduce(o.sequences_mean, o.sequences_max);
  for (auto& [key, durations] : classes)
    data.step_classes.push_back({.kind = key.first,
                                 .tokens_low = first_of_class(key.second),
                                 .tokens_high = first_of_class(key.second + 1) - 1,
                                 .n = static_cast<int64_t>(durations.size()),
                                 .p10_s = quantile(durations, 0.1),
                                 .p50_s = quantile(durations, 0.5),
                                 .p90_s = quantile(durations, 0.9),
                                 .max_s = *std::ranges::max_element(durations)});
}

namespace {

void reduce_counts(const Timings& timings, ReportData& data) {
  ReportData::Totals& t = data.totals;
  const int32_t first_attempt = data.attempts.empty() ? 0 : data.attempts.front().number;
  for (const RequestTiming& r : timings.requests) {
    ++t.n_requests;
    if (r.finish_reason == "error") ++t.n_failed;
    t.prompt_tokens += std::max(0, r.n_prompt);
    t.cached_tokens += std::max(0, r.n_cached);
    t.generated_tokens += std::max(0, r.n_generated);
    if (is_usable(r) && r.attempt == first_attempt && is_time(r.first_token_s) &&
        (t.first_token_s < 0 || r.first_token_s < t.first_token_s))
      t.first_token_s = r.first_token_s;
  }
}

struct Point {
  int64_t length;
  double seconds;
};

ReportData::Density density_of(const std::vector<Point>& points) {
  ReportData::Density d;
  if (points.empty()) return d;
  int first = size_class(points[0].length), last = first;
  double low = points[0].seconds, high = low;
  for (const Point& p : points) {
    first = std::min(first, size_class(p.length)), last = std::max(last, size_class(p.length));
    low = std::min(low, p.seconds), high = std::max(high, p.seconds);
  }
  if (high < 1.1 * low) low /= 1.05, high *= 1.05;
  d.n_seconds = 32;
  d.low_s = low, d.high_s = high;
  const double log_of_ratio = std::log(high / low) / d.n_seconds;
  std::vector<std::vector<float>> seconds(static_cast<size_t>(last - first) + 1);
  d.counts.resize(seconds.size() * static_cast<size_t>(d.n_seconds));
  for (const Point& p : points) {
    const auto x = static_cast<size_t>(size_class(p.length) - first);
    const int y = std::clamp(static_cast<int>(std::log(p.seconds / low) / log_of_ratio), 0, d.n_seconds - 1);
    ++d.counts[x * static_cast<size_t>(d.n_seconds) + static_cast<size_t>(y)];
    seconds[x].push_back(static_cast<float>(p.seconds));
  }
  for (int c = first; c <= last + 1; ++c) d.length_edges.push_back(first_of_class(c));
  for (auto& column : seconds) {
    d.median_s.push_back(column.empty() ? -1 : quantile(column, 0.5));
    d.p90_s.push_back(column.empty() ? -1 : quantile(column, 0.9));
  }
  return d;
}

}  // namespace

void reduce_requests(const Timings& timings, ReportData& data) {
  reduce_counts(timings, data);

  constexpr double kShortest = 1e-7;  // lines that need no step take no time; a logarithm wants some
  std::vector<Point> first, whole;
  for (const RequestTiming& r : timings.requests) {
    if (!is_usable(r) || r.n_prompt < 1) continue;
    if (const double s = r.first_token_s - r.admitted_s; s >= kShortest) first.push_back({r.n_prompt, s});
    if (const double s = r.done_s - r.admitted_s; s >= kShortest) whole.push_back({r.n_prompt, s});
  }
  data.first_token = density_of(first);
  data.whole = density_of(whole);
}

namespace {

int64_t count_unusable(const Timings& timings) {
  int64_t n = std::ranges::count_if(timings.requests, [](const auto& r) { return !is_usable(r); });
  for (const auto& [rank, steps] : timings.steps)
    n += std::ranges::count_if(steps, [](const auto& s) { return !is_usable(s.timing); });
  for (const auto& [rank, rows] : timings.gpus)
    n += std::ranges::count_if(rows, [](const auto& row) { return !is_usable(row.sample); });
  return n + std::ranges::count_if(timings.phases, [](const auto& p) { return !is_usable(p); });
}

}  // namespace

ReportData reduce(const Timings& timings) {
  const Axis axis(timings);
  ReportData data;
  data.end_s = axis.end_s();
  data.attempts = axis.attempts();
  data.totals.n_left_out = count_unusable(timings);
  reduce_steps(timings, axis, data);
  reduce_requests(timings, data);
  reduce_ranks(timings, axis, data);
  reduce_gpus(timings, axis, data);
  reduce_tail(timings, axis, data);
  return data;
}

}  // namespace lockstep
