#include <algorithm>
#include <vector>

#include "telemetry/report_axis.h"
#include "telemetry/report_data.h"

namespace lockstep {

namespace {

// visit(from, to, value): between two readings a value is the mean of both, for a second is short.
template <class Visit>
void for_each_interval(const std::vector<Timings::Gpu>& rows, double GpuReading::*field, const Visit& visit) {
  for (size_t i = 1; i < rows.size(); ++i) {
    const Timings::Gpu &a = rows[i - 1], &b = rows[i];
    if (a.attempt != b.attempt || !is_usable(a.sample) || !is_usable(b.sample) || a.sample.time_s >= b.sample.time_s) continue;
    const double value = (a.sample.reading.*field + b.sample.reading.*field) / 2;
    if (value >= 0 && value <= 1e9) visit(a, b, value);  // no NaN
  }
}

double mean_power_w(const std::vector<Timings::Gpu>& rows) {
  double joules = 0, seconds = 0;
  for_each_interval(rows, &GpuReading::power_w, [&](const Timings::Gpu& a, const Timings::Gpu& b, double watts) {
    joules += watts * (b.sample.time_s - a.sample.time_s);
    seconds += b.sample.time_s - a.sample.time_s;
  });
  return seconds > 0 ? joules / seconds : 0;
}

std::vector<double> over_time(const std::vector<Timings::Gpu>& rows, const Axis& axis, double GpuReading::*field) {
  Levels levels(0, axis.end_s(), ReportData::kTimeSlices);
  for_each_interval(rows, field, [&](const Timings::Gpu& a, const Timings::Gpu& b, double value) {
    levels.add(0, axis.joined(a.attempt, a.sample.time_s), axis.joined(b.attempt, b.sample.time_s), value);
  });
  const auto all = levels.by_replica();
  return all.empty() ? std::vector<double>(ReportData::kTimeSlices, -1) : all.begin()->second;
}

}  // namespace

void reduce_gpus(const Timings& timings, const Axis& axis, ReportData& data) {
  data.totals.n_gpus = static_cast<int64_t>(timings.gpus.size());
  std::vector<int> ranks;
  std::vector<double> power_w;
  for (const auto& [rank, rows] : timings.gpus) {
    ranks.push_back(rank);
    power_w.push_back(mean_power_w(rows));
  }
  for (const size_t i : evenly_chosen(power_w, ReportData::kMaxGpus)) {
    const std::vector<Timings::Gpu>& rows = timings.gpus.at(ranks[i]);
    data.gpus.push_back({.rank = ranks[i],
                         .power_w = over_time(rows, axis, &GpuReading::power_w),
                         .temperature_c = over_time(rows, axis, &GpuReading::temperature_c),
                         .sm_clock_mhz = over_time(rows, axis, &GpuReading::sm_clock_mhz)});
  }
}

}  // namespace lockstep
