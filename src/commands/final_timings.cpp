#include "commands/final_timings.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "base/hash.h"
#include "base/log.h"
#include "telemetry/timings_h5.h"

namespace lockstep {

namespace {

using Json = nlohmann::json;

int32_t count_in(const Json& usage, const char* name) {
  const auto found = usage.find(name);
  return found != usage.end() && found->is_number_integer() ? found->get<int32_t>() : 0;
}

// A record as merge wrote it.
RequestTiming row_of_record(const Json& record, int64_t line) {
  constexpr double kNever = std::numeric_limits<double>::quiet_NaN();
  RequestTiming row{.line = line, .admitted_s = kNever, .first_token_s = kNever, .done_s = kNever, .finish_reason = "error"};
  row.replica = -1;
  row.custom_id = record.value("custom_id", "");
  if (!record.at("response").is_object()) return row;
  const Json& body = record.at("response").at("body");
  row.n_prompt = count_in(body.at("usage"), "prompt_tokens");
  row.n_generated = count_in(body.at("usage"), "completion_tokens");
  row.finish_reason = body.at("choices").at(0).value("finish_reason", "");
  return row;
}

}  // namespace

FinalRows::FinalRows(const std::string& out_dir, std::span<const InputLine> lines, bool is_whole)
    : lines_(lines), raw_(out_dir), places_(lines.size()) {
  std::vector<uint32_t> by_id(lines.size());
  std::iota(by_id.begin(), by_id.end(), 0u);
  const auto id_of = [&](uint32_t i) { return lines[i].id; };
  std::ranges::sort(by_id, {}, id_of);
  rest_ = raw_.read([&](RequestTiming&& t, RawPlace place) {  // the last attempt counts
    const Digest id = digest128(t.custom_id);
    const auto at = std::ranges::lower_bound(by_id, id, {}, id_of);
    if (at != by_id.end() && lines[*at].id == id) places_[*at] = place;
  });
  shown_ = std::move(by_id);
  std::ranges::sort(shown_);
  if (is_whole)
    completions_.open(out_dir + "/completions.jsonl", std::ios::binary);
  else
    std::erase_if(shown_, [&](uint32_t i) { return !places_[i].known(); });
}

RequestTiming FinalRows::row_of_completion(size_t i) {
  std::string text;
  for (; n_passed_ <= i; ++n_passed_)
    if (!std::getline(completions_, text)) fail(ExitCode::output_io, "completions.jsonl: no record of line ", lines_[i].line);
  return row_of_record(Json::parse(text), lines_[i].line);
}

std::vector<RequestTiming> FinalRows::slice(size_t begin, size_t end) {
  std::vector<RawPlace> places;
  for (size_t r = begin; r < end; ++r)
    if (const RawPlace place = places_[shown_[r]]; place.known()) places.push_back(place);
  std::vector<RequestTiming> measured = raw_.requests_at(places), rows;
  for (size_t r = begin, m = 0; r < end; ++r) {
    const uint32_t i = shown_[r];
    rows.push_back(places_[i].known() ? std::move(measured[m++]) : row_of_completion(i));
    rows.back().line = lines_[i].line;
  }
  return rows;
}

void write_final_timings(const Job& job, bool is_whole, const std::vector<Timings::Phase>& more) {
  try {
    FinalRows rows(job.out_dir, job.input->lines(), is_whole);
    Timings timings = rows.rest();
    timings.phases.insert(timings.phases.end(), more.begin(), more.end());
    write_timings_h5(job.out_dir + "/timings.h5", timings,
                     {rows.size(), [&](size_t begin, size_t end) { return rows.slice(begin, end); }});
  } catch (const std::exception& e) {
    log_warning("timings.h5: ", e.what());
  }
}

}  // namespace lockstep
