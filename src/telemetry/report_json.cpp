#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "telemetry/report_data.h"

namespace lockstep {

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxAttempts = 100;  // marked on the axis
constexpr size_t kMaxText = 300;      // bytes of a text that is shown

double rounded(double value, int n_digits) {
  if (!std::isfinite(value)) return -1;
  char text[40];
  std::snprintf(text, sizeof text, "%.*g", n_digits, value);
  return std::strtod(text, nullptr);
}
double at(double s) { return rounded(s, 8); }      // a time on the axis
double amount(double v) { return rounded(v, 4); }  // anything else

// Small beside the largest is nothing: what floating point left over must not show.
Json list(const std::vector<double>& values) {
  double largest = 0;
  for (const double v : values) largest = std::max(largest, v);
  Json all = Json::array();
  for (const double v : values) all.push_back(v >= 0 && v < largest * 1e-9 ? 0 : amount(v));
  return all;
}

Json percents(const std::vector<double>& shares) {
  Json all = Json::array();
  for (const double v : shares) all.push_back(static_cast<int>(std::lround(100 * v)));
  return all;
}

std::string cut(const std::string& text) {
  if (text.size() <= kMaxText) return text;
  size_t end = kMaxText;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // not within a character
  return text.substr(0, end) + "…";
}

Json attempts_of(const ReportData& data) {
  Json all = Json::array();
  const size_t n = data.attempts.size();
  for (size_t i = n - std::min(n, kMaxAttempts); i < n; ++i)
    all.push_back(
        {{"number", data.attempts[i].number}, {"begin", at(data.attempts[i].begin_s)}, {"end", at(data.attempts[i].end_s)}});
  return all;
}

Json totals_of(const ReportData::Totals& t) {
  return {{"requests", t.n_requests},
          {"failed", t.n_failed},
          {"prompt_tokens", t.prompt_tokens},
          {"cached_tokens", t.cached_tokens},
          {"generated_tokens", t.generated_tokens},
          {"prefill_tokens", t.prefill_tokens},
          {"decode_tokens", t.decode_tokens},
          {"steps", t.n_steps},
          {"ranks", t.n_ranks},
          {"replicas", t.n_replicas},
          {"left_out", t.n_left_out}};
}

Json density_of(const ReportData::Density& d) {
  return {{"lengths", d.length_edges}, {"low", amount(d.low_s)},     {"high", amount(d.high_s)}, {"rows", d.n_seconds},
          {"counts", d.counts},        {"median", list(d.median_s)}, {"p90", list(d.p90_s)}};
}

Json ranks_of(const ReportData& data) {
  Json all = Json::array();
  for (const ReportData::Rank& r : data.ranks) {
    Json phases = Json::array();
    for (const auto& p : r.phases) phases.push_back({cut(p.name), at(p.begin_s), at(p.end_s)});
    all.push_back({{"rank", r.rank},
                   {"place", {r.place.replica, r.place.stage, r.place.tensor_rank}},
                   {"phases", phases},
                   {"seconds", {amount(r.compute_s), amount(r.communication_s), amount(r.waiting_s)}},
                   {"shares", {percents(r.compute), percents(r.communication), percents(r.waiting)}}});
  }
  return all;
}

Json gpus_of(const ReportData& data) {
  Json all = Json::array();
  for (const ReportData::Gpu& g : data.gpus)
    all.push_back({{"rank", g.rank},
                   {"power", list(g.power_w)},
                   {"temperature", list(g.temperature_c)},
                   {"sm_clock", list(g.sm_clock_mhz)}});
  return all;
}

Json tail_of(const ReportData::Tail& tail) {
  Json active = Json::array(), last = Json::array();
  for (const auto& a : tail.active) active.push_back({{"replica", a.replica}, {"sequences", list(a.sequences)}});
  for (const ReportData::Ending& e : tail.last)
    last.push_back({{"id", cut(e.custom_id)},
                    {"line", e.line},
                    {"reason", cut(e.finish_reason)},
                    {"replica", e.replica},
                    {"prompt", e.n_prompt},
                    {"generated", e.n_generated},
                    {"times", {at(e.admitted_s), at(e.first_token_s), at(e.done_s)}}});
  return {{"begin", at(tail.begin_s)}, {"end", at(tail.end_s)}, {"active", active}, {"last", last}};
}

}  // namespace

std::string to_json(const ReportData& data) {
  const ReportData::OverTime& o = data.over_time;
  Json classes = Json::array();
  for (const auto& c : data.step_classes)
    classes.push_back(
        {c.kind, c.tokens_low, c.tokens_high, c.n, amount(c.p10_s), amount(c.p50_s), amount(c.p90_s), amount(c.max_s)});
  const Json j = {{"end", at(data.end_s)},
                  {"attempts", attempts_of(data)},
                  {"totals", totals_of(data.totals)},
                  {"over_time",
                   {{"slice", at(o.slice_s)},
                    {"in_tokens_per_s", list(o.in_tokens_per_s)},
                    {"out_tokens_per_s", list(o.out_tokens_per_s)},
                    {"pages_mean", list(o.pages_mean)},
                    {"pages_max", list(o.pages_max)},
                    {"sequences_mean", list(o.sequences_mean)},
                    {"sequences_max", list(o.sequences_max)}}},
                  {"step_classes", classes},  // kind, tokens from, to, steps, p10, p50, p90, max
                  {"first_token", density_of(data.first_token)},
                  {"whole", density_of(data.whole)},
                  {"rank_slice", at(data.rank_slice_s)},
                  {"ranks", ranks_of(data)},
                  {"gpus", gpus_of(data)},
                  {"tail", tail_of(data.tail)}};
  const std::string text = j.dump(-1, ' ', true, Json::error_handler_t::replace);
  std::string safe;
  safe.reserve(text.size());
  for (const char c : text) {
    if (c == '<')
      safe += "\\u003c";  // only ever inside a string
    else
      safe += c;
  }
  return safe;
}

}  // namespace lockstep
