#include "commands/final_timings.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

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

void align_with_input(std::vector<RequestTiming>& rows, const std::vector<InputLine>& lines) {
  std::map<Digest, int64_t> numbers;
  for (const InputLine& line : lines) numbers.emplace(line.id, line.line);
  std::erase_if(rows, [&](RequestTiming& row) {
    const auto found = numbers.find(digest128(row.custom_id));
    if (found != numbers.end()) row.line = found->second;
    return found == numbers.end();
  });
  std::ranges::sort(rows, {}, &RequestTiming::line);
}

void add_rows_of_records(std::vector<RequestTiming>& rows, const std::vector<InputLine>& lines,
                         const std::string& completions) {
  if (rows.size() == lines.size()) return;
  const size_t n_known = rows.size();
  std::ifstream file(completions, std::ios::binary);
  std::string text;
  size_t known = 0;
  for (const InputLine& line : lines) {
    if (!std::getline(file, text)) break;
    while (known < n_known && rows[known].line < line.line) ++known;
    if (known < n_known && rows[known].line == line.line) continue;
    rows.push_back(row_of_record(Json::parse(text), line.line));
  }
  std::ranges::sort(rows, {}, &RequestTiming::line);
}

void write_final_timings(const Job& job, bool is_whole, const std::vector<Timings::Phase>& more) {
  try {
    Timings timings = read_timings(job.out_dir);
    align_with_input(timings.requests, job.input->lines());
    if (is_whole) add_rows_of_records(timings.requests, job.input->lines(), job.out_dir + "/completions.jsonl");
    timings.phases.insert(timings.phases.end(), more.begin(), more.end());
    write_timings_h5(job.out_dir + "/timings.h5", timings);
  } catch (const std::exception& e) {
    log_warning("timings.h5: ", e.what());
  }
}

}  // namespace lockstep
