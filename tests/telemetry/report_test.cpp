// The reduction behind report.html, by cases whose answer is visible, and the page as text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "telemetry/report_bins.h"
#include "telemetry/report_data.h"
#include "telemetry/report_page.h"

namespace lockstep {
namespace {

using ::testing::DoubleEq;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();

// ---- slices of time ----
TEST(TimeSums, AnAmountIsSpreadOverItsTime) {
  TimeSums sums(0, 10, 5);
  sums.spread(1, 5, 8);  // two a second
  EXPECT_THAT(sums.values(), ElementsAre(2, 4, 2, 0, 0));
  sums.spread(6.5, 7, 3);
  EXPECT_THAT(sums.values(), ElementsAre(2, 4, 2, 3, 0));
  sums.spread(9, 9, 5);  // in no time
  EXPECT_THAT(sums.values(), ElementsAre(2, 4, 2, 3, 5));
}

TEST(TimeSums, WhatIsOutsideIsLeftOut) {
  TimeSums sums(10, 20, 2);
  sums.spread(0, 30, 30);
  EXPECT_THAT(sums.values(), ElementsAre(5, 5));
  sums.spread(0, 9, 100), sums.spread(21, 25, 100);
  EXPECT_THAT(sums.values(), ElementsAre(5, 5));
  sums.spread(20, 20, 1);
  EXPECT_THAT(sums.values(), ElementsAre(5, 6));
}

TEST(TimeSums, NothingIsLostWhateverTheCut) {
  TimeSums sums(0, 7, 13);
  double all = 0;
  for (int i = 0; i < 500; ++i) {
    const double from = 7.0 * ((i * 37) % 500) / 500, to = std::min(7.0, from + 0.01 * (i % 90));
    sums.spread(from, to, i);
    all += i;
  }
  const auto values = sums.values();
  EXPECT_NEAR(std::accumulate(values.begin(), values.end(), 0.0), all, 1e-6);
}

// ---- classes and quantiles ----
TEST(SizeClass, SixteenAloneThenFourToADoubling) {
  for (int n = 1; n <= 16; ++n) {
    EXPECT_EQ(size_class(n), n - 1);
    EXPECT_EQ(first_of_class(n - 1), n);
  }
  std::vector<int64_t> firsts;
  for (int c = 16; c < 25; ++c) firsts.push_back(first_of_class(c));
  EXPECT_THAT(firsts, ElementsAre(17, 20, 23, 27, 33, 39, 46, 54, 65));
  for (int64_t n = 1; n < 70000; ++n) {
    ASSERT_LE(first_of_class(size_class(n)), n);
    ASSERT_GT(first_of_class(size_class(n) + 1), n);
  }
  EXPECT_EQ(first_of_class(size_class(int64_t{1} << 32) + 1), (int64_t{1} << 32) + 1);
}

TEST(Quantile, LiesBetweenNeighbours) {
  std::vector<float> five = {5, 1, 4, 2, 3};
  EXPECT_EQ(quantile(five, 0), 1);
  EXPECT_EQ(quantile(five, 0.5), 3);
  EXPECT_EQ(quantile(five, 1), 5);
  EXPECT_NEAR(quantile(five, 0.1), 1.4, 1e-6);
  EXPECT_NEAR(quantile(five, 0.9), 4.6, 1e-6);
  std::vector<float> two = {10, 0}, one = {7};
  EXPECT_EQ(quantile(two, 0.5), 5);
  EXPECT_EQ(quantile(one, 0.9), 7);
}

// ---- the reduction ----
Timings::Step step(int32_t attempt, double start_s, double duration_s, int32_t n_in, int32_t n_out, int32_t n_seqs = 1) {
  StepTiming t{
      .start_s = start_s, .duration_s = duration_s, .n_prefill_tokens = n_in, .n_decode_tokens = n_out, .n_seqs = n_seqs};
  t.n_pages = int64_t{10} * n_seqs;
  return {attempt, t};
}

double sum(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

// Attempt 1: one replica of two ranks for 10 s. Attempt 2: two replicas of one rank for 14 s.
Timings two_attempts() {
  Timings t;
  t.places = {{{1, 0}, {0, 0, 0}}, {{1, 1}, {0, 0, 1}}, {{2, 0}, {0, 0, 0}}, {{2, 1}, {1, 0, 0}}};
  for (const int rank : {0, 1}) t.steps[rank] = {step(1, 0, 5, 50, 0), step(1, 5, 5, 0, 20)};
  t.steps[0].push_back(step(2, 0, 14, 0, 14));
  t.steps[1].push_back(step(2, 0, 7, 0, 7, 3));
  return t;
}

TEST(Reduce, RanksOfAReplicaCountOnce) {
  const ReportData d = reduce(two_attempts());
  EXPECT_EQ(d.totals.n_steps, 4);
  EXPECT_EQ(d.totals.prefill_tokens, 50);
  EXPECT_EQ(d.totals.decode_tokens, 20 + 14 + 7);
  EXPECT_EQ(d.totals.n_ranks, 2);
  EXPECT_EQ(d.totals.n_replicas, 2);
  EXPECT_NEAR(sum(d.over_time.in_tokens_per_s) * d.over_time.slice_s, 50, 1e-9);
  EXPECT_NEAR(sum(d.over_time.out_tokens_per_s) * d.over_time.slice_s, 41, 1e-9);
}

TEST(Reduce, AttemptsFollowEachOther) {
  const ReportData d = reduce(two_attempts());
  ASSERT_EQ(d.attempts.size(), 2u);
  EXPECT_EQ(d.end_s, 24);
  EXPECT_EQ(d.attempts[0].end_s, 10);
  EXPECT_EQ(d.attempts[1].begin_s, 10);
  EXPECT_EQ(d.over_time.slice_s, 0.1);  // 24 s in 240 slices
  EXPECT_NEAR(d.over_time.in_tokens_per_s[10], 10, 1e-9);
  EXPECT_NEAR(d.over_time.out_tokens_per_s[75], 4, 1e-9);
  EXPECT_NEAR(d.over_time.out_tokens_per_s[150], 2, 1e-9);  // both replicas
  EXPECT_NEAR(d.over_time.out_tokens_per_s[200], 1, 1e-9);  // the slower one
  EXPECT_EQ(d.totals.busy_s, 24);
}

TEST(Reduce, LevelsAreOfTheReplicasAtWork) {
  const ReportData::OverTime o = reduce(two_attempts()).over_time;
  EXPECT_NEAR(o.pages_mean[20], 10, 1e-9);
  EXPECT_NEAR(o.pages_mean[150], 20, 1e-9);  // 10 and 30
  EXPECT_NEAR(o.pages_max[150], 30, 1e-9);
  EXPECT_NEAR(o.pages_mean[200], 10, 1e-9);
  EXPECT_NEAR(o.sequences_max[150], 3, 1e-9);
  Timings gap;
  gap.steps[0] = {step(1, 0, 1, 1, 0), step(1, 3, 1, 1, 0)};
  const ReportData d = reduce(gap);
  EXPECT_EQ(d.over_time.pages_mean[120], -1);
  EXPECT_EQ(d.over_time.pages_max[120], -1);
  EXPECT_EQ(d.over_time.in_tokens_per_s[120], 0);
}

TEST(Reduce, StepsByKindAndSize) {
  Timings t;
  for (int i = 1; i <= 5; ++i) t.steps[0].push_back(step(1, i, 0.1 * i, 0, 8));
  t.steps[0].push_back(step(1, 7, 1, 100, 0));
  t.steps[0].push_back(step(1, 8, 2, 10, 8));
  t.steps[0].push_back(step(1, 10, 2, 11, 8));
  t.steps[0].push_back(step(1, 12, 2, 0, 0));  // nothing computed: no batch
  const auto classes = reduce(t).step_classes;
  ASSERT_EQ(classes.size(), 3u);
  EXPECT_EQ(classes[0].kind, 0);
  EXPECT_EQ(classes[0].tokens_low, 91);
  EXPECT_EQ(classes[0].tokens_high, 107);
  EXPECT_EQ(classes[1].kind, 1);
  EXPECT_EQ(classes[1].tokens_low, 8);
  EXPECT_EQ(classes[1].tokens_high, 8);
  EXPECT_EQ(classes[1].n, 5);
  EXPECT_NEAR(classes[1].p50_s, 0.3, 1e-6);
  EXPECT_NEAR(classes[1].p10_s, 0.14, 1e-6);
  EXPECT_NEAR(classes[1].max_s, 0.5, 1e-6);
  EXPECT_EQ(classes[2].kind, 2);
  EXPECT_EQ(classes[2].tokens_low, 17);
  EXPECT_EQ(classes[2].n, 2);
}

RequestTiming request(int64_t line, double admitted_s, double first_s, double done_s, int32_t n_prompt) {
  return {.line = line,
          .custom_id = std::string("r").append(std::to_string(line)),
          .attempt = 1,
          .admitted_s = admitted_s,
          .first_token_s = first_s,
          .done_s = done_s,
          .n_prompt = n_prompt,
          .n_generated = 2,
          .finish_reason = "stop"};
}

TEST(Reduce, LatencyByPromptLength) {
  Timings t;
  t.requests = {request(1, 0, 1, 2, 10), request(2, 0, 1, 4, 10), request(3, 1, 2, 17, 12), request(4, kNan, kNan, kNan, 0),
                request(5, 3, kNan, 3, 10)};
  t.requests[3].finish_reason = "error";
  const ReportData d = reduce(t);
  EXPECT_EQ(d.totals.n_requests, 5);
  EXPECT_EQ(d.totals.n_failed, 1);
  EXPECT_EQ(d.totals.n_left_out, 0);
  EXPECT_EQ(d.totals.first_token_s, 1);
  EXPECT_THAT(d.whole.length_edges, ElementsAre(10, 11, 12, 13));
  EXPECT_THAT(d.whole.median_s, ElementsAre(3, -1, 16));
  EXPECT_EQ(d.whole.low_s, 2);
  EXPECT_EQ(d.whole.high_s, 16);
  // 2 s to 16 s are three doublings in 32 rows: 4 s begins row 10
  EXPECT_EQ(d.whole.counts[0], 1);
  EXPECT_EQ(d.whole.counts[10], 1);
  EXPECT_EQ(d.whole.counts[2 * 32 + 31], 1);
  EXPECT_EQ(std::accumulate(d.whole.counts.begin(), d.whole.counts.end(), int64_t{0}), 3);
  EXPECT_EQ(std::accumulate(d.first_token.counts.begin(), d.first_token.counts.end(), int64_t{0}), 3);
  EXPECT_LT(d.first_token.low_s, d.first_token.high_s);  // all took a second
}

TEST(Reduce, SharesOfARank) {
  Timings t;
  t.phases = {{1, 0, {"open", 2}}, {1, 0, {"load", 4}}, {1, 0, {"run", 10}}, {1, 1, {"open", 3}}};
  Timings::Step s = step(1, 6, 10, 1, 0);
  s.timing.comm_s = 5, s.timing.wait_s = 2;  // so 5 in compute, 3 in communication
  t.steps[0] = {s};
  const ReportData d = reduce(t);
  ASSERT_EQ(d.ranks.size(), 2u);
  EXPECT_EQ(d.end_s, 16);
  const ReportData::Rank& r = d.ranks[0];
  EXPECT_NEAR(r.compute_s, 5, 1e-9);
  EXPECT_NEAR(r.communication_s, 3, 1e-9);
  EXPECT_NEAR(r.waiting_s, 2, 1e-9);
  EXPECT_EQ(r.compute[60], 0);  // 4 s
  EXPECT_NEAR(r.compute[150], 0.5, 1e-9);
  EXPECT_NEAR(r.communication[150], 0.3, 1e-9);
  EXPECT_NEAR(r.waiting[150], 0.2, 1e-9);
  ASSERT_EQ(r.phases.size(), 3u);
  EXPECT_EQ(r.phases[1].name, "load");
  EXPECT_EQ(r.phases[1].begin_s, 2);
  EXPECT_EQ(r.phases[2].end_s, 16);
  EXPECT_THAT(d.ranks[1].compute, Each(DoubleEq(0)));
}

TEST(Reduce, ManyRanksAreThinnedButTheExtremesStay) {
  Timings t;
  for (int rank = 0; rank < 1000; ++rank) t.steps[rank] = {step(1, 0, rank == 501 ? 9 : rank == 777 ? 1 : 5, 1, 0)};
  const ReportData d = reduce(t);
  EXPECT_EQ(d.totals.n_ranks, 1000);
  EXPECT_EQ(d.ranks.size(), static_cast<size_t>(ReportData::kMaxRanks));
  std::vector<int> shown;
  for (const auto& r : d.ranks) shown.push_back(r.rank);
  EXPECT_TRUE(std::ranges::is_sorted(shown));
  EXPECT_THAT(shown, testing::IsSupersetOf({501, 777}));
}

Timings::Gpu gpu(int32_t attempt, double time_s, double power_w, double temperature_c = kNan) {
  return {attempt, {.time_s = time_s, .reading = {.power_w = power_w, .temperature_c = temperature_c}}};
}

TEST(Reduce, AGpuOverTheAttempts) {
  Timings t;
  t.steps[0] = {step(1, 0, 10, 1, 0), step(2, 0, 14, 1, 0)};  // 24 s in 240 slices
  t.gpus[0] = {gpu(1, 1, 100), gpu(1, 3, 300),     gpu(1, 5, kNan),    gpu(1, 6, 50),
               gpu(1, 8, 50),  gpu(2, 9, 400, 60), gpu(2, 11, 400, 70)};
  const ReportData d = reduce(t);
  ASSERT_EQ(d.gpus.size(), 1u);
  const std::vector<double>& w = d.gpus[0].power_w;
  EXPECT_EQ(w[5], -1);  // 0.5 s: before the first reading
  EXPECT_NEAR(w[20], 200, 1e-9);
  EXPECT_EQ(w[40], -1) << "a reading is missing";
  EXPECT_EQ(w[55], -1);
  EXPECT_NEAR(w[70], 50, 1e-9);
  EXPECT_EQ(w[110], -1) << "between the attempts";
  EXPECT_NEAR(w[200], 400, 1e-9);  // 10 s into the second
  EXPECT_NEAR(d.gpus[0].temperature_c[200], 65, 1e-9);
  EXPECT_EQ(d.gpus[0].temperature_c[20], -1);
  EXPECT_THAT(d.gpus[0].sm_clock_mhz, Each(DoubleEq(-1)));
  const auto json = nlohmann::json::parse(to_json(d));
  EXPECT_EQ(json["gpus"][0]["power"][40], -1) << "no NaN in JSON";
  EXPECT_TRUE(nlohmann::json::parse(to_json(reduce(two_attempts())))["gpus"].empty());
}

TEST(Reduce, ManyGpusAreThinned) {
  Timings t;
  for (int rank = 0; rank < 100; ++rank) {
    const double watts = rank == 33 ? 700 : rank == 66 ? 1 : 400;
    t.gpus[rank] = {gpu(1, 0, watts), gpu(1, 10, watts)};
  }
  const ReportData d = reduce(t);
  EXPECT_EQ(d.end_s, 10);
  EXPECT_EQ(d.totals.n_gpus, 100);
  ASSERT_EQ(d.gpus.size(), static_cast<size_t>(ReportData::kMaxGpus));
  std::vector<int> shown;
  for (const auto& g : d.gpus) shown.push_back(g.rank);
  EXPECT_THAT(shown, testing::IsSupersetOf({33, 66}));
  EXPECT_THAT(facts_of("", d, {}).notes, testing::Contains(HasSubstr("of 100 ranks with a GPU 8 are shown")));
}

TEST(Reduce, TheTailIsTheLastOnesAndTheirSequences) {
  Timings t;
  for (int i = 0; i < 100; ++i) t.requests.push_back(request(i + 1, i, i + 0.5, i + 1, 5));
  std::swap(t.requests[0], t.requests[99]);  // in order of their ends, not of the rows
  t.places = {{{1, 0}, {0, 0, 0}}, {{1, 1}, {1, 0, 0}}};
  t.steps[0] = {step(1, 0, 100, 0, 1, 4)};
  t.steps[1] = {step(1, 0, 90, 0, 1, 2)};
  const ReportData::Tail tail = reduce(t).tail;
  ASSERT_EQ(tail.last.size(), 20u);
  EXPECT_EQ(tail.last.front().custom_id, "r81");
  EXPECT_EQ(tail.last.back().custom_id, "r100");
  EXPECT_EQ(tail.begin_s, 80);
  EXPECT_EQ(tail.end_s, 100);
  ASSERT_EQ(tail.active.size(), 2u);
  EXPECT_THAT(tail.active[0].sequences, Each(DoubleEq(4)));
  EXPECT_NEAR(tail.active[1].sequences.front(), 2, 1e-9);
  EXPECT_EQ(tail.active[1].sequences.back(), 0);
}

TEST(Reduce, AnEmptyRunIsDrawnEmpty) {
  const ReportData d = reduce({});
  EXPECT_GT(d.end_s, 0);
  EXPECT_TRUE(nlohmann::json::parse(to_json(d)).is_object());
}

TEST(Reduce, ImpossibleTimesAreLeftOutAndCounted) {
  Timings t;
  for (const double bad : {-1.0, 1e300, kInfinity, -kInfinity}) {
    t.requests.push_back(request(1, bad, 1, 2, 10));
    t.requests.push_back(request(1, 0, 1, bad, 10));
    t.steps[0].push_back(step(1, bad, 1, 5, 5));
    t.steps[0].push_back(step(1, 1, bad, 5, 5));
    t.phases.push_back({1, 0, {"open", bad}});
    t.gpus[0].push_back(gpu(1, bad, 5));
    t.gpus[0].push_back(gpu(1, 1, bad));
  }
  t.steps[0].push_back(step(1, kNan, 1, 5, 5));
  t.steps[0].push_back(step(1, 0, 2, 6, 0));
  t.steps[0].back().timing.comm_s = kNan;
  t.steps[0].push_back(step(2, 0, 2, INT32_MIN, INT32_MAX, INT32_MIN));
  t.steps[0].back().timing.n_pages = INT64_MIN;
  t.steps[0].push_back(step(INT32_MIN, 0, 2, INT32_MAX, INT32_MAX, INT32_MAX));
  t.requests.push_back(request(7, 5, 3, 1, INT32_MAX));  // done before it was admitted
  const ReportData d = reduce(t);
  EXPECT_EQ(d.totals.n_left_out, 8 + 9 + 4 + 4);
  EXPECT_EQ(d.totals.n_steps, 3);
  EXPECT_EQ(d.end_s, 6);
  EXPECT_TRUE(nlohmann::json::parse(to_json(d)).is_object());
}

// ---- the page ----
TEST(Page, WhatComesFromFilesIsText) {
  const std::string evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)> {{data}} \"'&\u2028";
  Timings t;
  t.requests = {request(1, 0, 1, 2, 10)};
  t.requests[0].custom_id = t.requests[0].finish_reason = evil;
  t.phases = {{1, 0, {evil, 1}}};
  nlohmann::json run;
  run["model"] = {{"name", evil}, {"format", evil}};
  run["hosts"] = {evil};
  run["options"] = {{evil, evil}};
  run["warnings"] = {evil};
  run["phases_s"] = {{evil, 1}};
  run["layout"] = {{"tp", evil}};
  const ReportData data = reduce(t);
  const std::string page = report_page(data, facts_of(run.dump(), data, {evil}));
  size_t n_scripts = 0;
  for (size_t at = 0; (at = page.find("<script", at)) != std::string::npos; ++at) ++n_scripts;
  EXPECT_EQ(n_scripts, 2u);  // the data and ours
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_THAT(page, Not(HasSubstr("alert(1)</script>")));
  EXPECT_THAT(page, HasSubstr("<h1>&lt;/script&gt;&lt;script&gt;alert(1)"));
  EXPECT_THAT(page, HasSubstr("{{data}} &quot;&#39;&amp;"));  // put in once, not looked at again
  EXPECT_THAT(page, HasSubstr("\\u003c/script>"));
  const size_t begin = page.find("id=\"data\">") + 10, end = page.find("</script>", begin);
  const std::string data_text = page.substr(begin, end - begin);
  EXPECT_EQ(std::find_if(data_text.begin(), data_text.end(), [](char c) { return c == '<' || c < 0; }), data_text.end());
  const auto json = nlohmann::json::parse(data_text);
  EXPECT_EQ(json["tail"]["last"][0]["id"], evil);
}

TEST(Page, NeedsNothingFromOutside) {
  const ReportData data = reduce(two_attempts());
  const std::string page = report_page(data, facts_of("", data, {}));
  for (const char* outside : {"src=", "href=", "@import", "url(", "fetch(", "XMLHttpRequest", "innerHTML", "eval("})
    EXPECT_THAT(page, Not(HasSubstr(outside))) << outside;
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  EXPECT_THAT(page, HasSubstr("prefers-color-scheme: dark"));
}

TEST(Page, EnergyIsSaidWhereItWasMeasured) {
  const ReportData data = reduce(two_attempts());
  const auto energy = [&](const std::string& run_json) {
    for (const auto& [name, value] : facts_of(run_json, data, {}).facts)
      if (name == "Energy of the last attempt") return value;
    return std::string();
  };
  EXPECT_EQ(energy("{}"), "");
  EXPECT_EQ(energy(R"({"energy_j": {"load": 500, "run": 12345}, "energy_gpus": 2, "joules_per_token": {"generated": 0.25}})"),
            "load 500 J · run 12.3 kJ · 0.25 J a generated token, 2 GPUs");
}

TEST(Page, FactsOfAnyJsonAreSurvived) {
  const ReportData data = reduce(two_attempts());
  for (const char* text :
       {"", "[]", "{", "null", R"({"model": 7, "layout": [], "hosts": {}, "phases_s": "x", "memory_bytes": 1})",
        R"({"layout": {"tp": {}, "ranks": -1e300}, "tokens_per_s": {"total": 1e308, "generated": 1}, "exit_code": []})"})
    EXPECT_EQ(facts_of(text, data, {}).title, "run") << text;
  const ReportFacts facts = facts_of(R"({"model": {"name": "m"}, "hosts": ["a", "b", "a"], "warnings": ["w"]})", data, {"n"});
  EXPECT_EQ(facts.title, "m");
  EXPECT_THAT(facts.facts, testing::Contains(std::pair<std::string, std::string>("Hosts", "a × 2, b")));
  EXPECT_THAT(facts.notes, ElementsAre("n", "w"));
}

TEST(Page, LongTextsAreCutWithinNoCharacter) {
  Timings t;
  t.requests = {request(1, 0, 1, 2, 10)};
  t.requests[0].custom_id.clear();
  for (int i = 0; i < 1000; ++i) t.requests[0].custom_id += "界";
  const std::string id = nlohmann::json::parse(to_json(reduce(t)))["tail"]["last"][0]["id"];
  EXPECT_EQ(id.size(), 300u + 3);
  EXPECT_THAT(id, testing::EndsWith("界…"));
}

}  // namespace
}  // namespace lockstep
