#include "commands/report.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/durable_file.h"
#include "base/log.h"
#include "base/units.h"
#include "commands/agree.h"
#include "commands/apart.h"
#include "telemetry/raw_timings.h"
#include "telemetry/report_data.h"
#include "telemetry/report_page.h"
#include "telemetry/timings_h5.h"

namespace lockstep {

namespace {

namespace fs = std::filesystem;

int32_t last_attempt(const Timings& timings) {
  int32_t last = 0;
  for (const auto& [rank, steps] : timings.steps)
    for (const auto& step : steps) last = std::max(last, step.attempt);
  for (const auto& phase : timings.phases) last = std::max(last, phase.attempt);
  return last;
}

// timings.h5, or the raw records where an attempt has begun after it was written.
Timings timings_of(const std::string& dir, std::vector<std::string>& notes) {
  const std::string path = dir + "/timings.h5";
  const int32_t last_raw = last_raw_attempt(dir);
  std::optional<Timings> timings;
  std::error_code ignored;
  if (fs::exists(path, ignored)) timings = read_timings_h5(path);
  if (timings && last_attempt(*timings) >= last_raw) return *std::move(timings);
  if (last_raw == 0) fail(ExitCode::unreadable, path, ": there is none, nor raw timings of an unfinished run");
  notes.push_back(concat("attempt ", last_raw,
                         timings ? " is newer than timings.h5: this is drawn from the raw records of all attempts"
                                 : " has not ended in order: this is drawn from the raw records"));
  return read_timings(dir);
}

std::string run_json_of(const std::string& dir, std::vector<std::string>& notes) {
  try {
    if (auto text = read_small_file(dir + "/run.json")) return *std::move(text);
    notes.push_back("there is no run.json: the facts of the run are missing here");
  } catch (const Error& e) {
    notes.push_back(e.what());
  }
  return "";
}

void write_report(const ReportOptions& options) {
  const std::string& dir = options.directory;
  std::error_code ignored;
  if (!fs::is_directory(dir, ignored)) fail(ExitCode::unreadable, dir, ": is no directory");
  std::vector<std::string> notes;
  const ReportData data = reduce(timings_of(dir, notes));
  const std::string run_json = run_json_of(dir, notes);
  for (const std::string& note : notes) log_info(note);
  const std::string page = report_page(data, facts_of(run_json, data, notes));
  const std::string path = options.output.empty() ? dir + "/report.html" : options.output;
  atomic_write(path, page);
  log_info(path, ": ", format_bytes(page.size()), ", ", data.totals.n_requests, " requests, ", data.totals.n_steps, " steps");
}

}  // namespace

ExitCode report(const MpiSession& mpi, const ReportOptions& options) {
  if (mpi.rank != 0) return ExitCode::done;
  try {
    run_apart(options.directory + "/timings.h5", [&] { write_report(options); });
  } catch (const Error& e) {
    throw AgreedError{e.code, e.what()};
  }
  return ExitCode::done;
}

}  // namespace lockstep
