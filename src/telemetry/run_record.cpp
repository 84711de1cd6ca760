#include "telemetry/run_record.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace lockstep {

namespace {

using Json = nlohmann::ordered_json;

Json object_of(const RunRecord::Pairs& pairs) {
  Json object = Json::object();
  for (const auto& [name, value] : pairs) object[name] = value;
  return object;
}

double rate(int64_t n, double seconds) { return seconds > 0 ? static_cast<double>(n) / seconds : 0; }

// Of the phase that generates.
double energy_of_run(const EnergyRecord& energy) {
  const auto run = std::ranges::find(energy.phases, "run", &PhaseEnergy::phase);
  return run != energy.phases.end() ? run->joules : GpuReading::kUnknown;
}

// Names that are there only where there was something to measure.
void add_energy(Json& j, const RunRecord& r) {
  if (r.energy.n_gpus == 0) return;
  j["energy_j"] = Json::object();
  for (const PhaseEnergy& p : r.energy.phases) j["energy_j"][p.phase] = p.joules;
  j["energy_gpus"] = r.energy.n_gpus;
  j["energy_source"] = r.energy.from_counter ? "counter" : "power";
  const double joules = energy_of_run(r.energy);
  const auto per_token = [&](const char* name, int64_t n) {
    if (n > 0 && !std::isnan(joules)) j["joules_per_token"][name] = joules / static_cast<double>(n);
  };
  per_token("total", r.n_prompt_tokens + r.n_generated_tokens);
  per_token("generated", r.n_generated_tokens);
}

}  // namespace

std::string to_json(const RunRecord& r) {
  Json j;
  j["program"] = {{"name", r.program}, {"version", r.version}};
  j["libraries"] = object_of(r.libraries);
  j["options"] = object_of(r.options);
  j["layout"] = {{"dp", r.dp}, {"pp", r.pp}, {"tp", r.tp}, {"ranks", r.n_ranks}, {"threads", r.n_threads}, {"lag", r.lag}};
  j["hosts"] = r.hosts;
  j["device"] = r.device;
  j["dtype"] = r.dtype;
  j["kernel_class"] = r.kernel_class;
  j["model"] = {{"name", r.model}, {"format", r.model_format}, {"digest", r.model_digest}, {"files", object_of(r.model_files)}};
  j["input"] = {{"path", r.input}, {"digest", r.input_digest}, {"lines", r.n_lines}};
  j["attempt"] = r.attempt;
  j["done_before"] = r.n_done_before;
  j["done"] = r.n_done;
  j["failed"] = r.n_failed;
  j["tokens"] = {{"prompt", r.n_prompt_tokens}, {"cached", r.n_cached_tokens}, {"generated", r.n_generated_tokens}};
  j["tokens_per_s"] = {{"total", rate(r.n_prompt_tokens + r.n_generated_tokens, r.run_s)},
                       {"generated", rate(r.n_generated_tokens, r.run_s)}};
  j["phases_s"] = Json::object();
  for (const PhaseTiming& phase : r.phases) j["phases_s"][phase.name] = phase.seconds;
  add_energy(j, r);
  j["memory_bytes"] = {{"weights", r.weight_bytes}, {"kv", r.kv_bytes}, {"swap", r.swap_bytes}};
  j["completions_digest"] = r.completions_digest;
  j["exit_code"] = r.exit_code;
  j["warnings"] = r.warnings;
  return j.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string to_table(const RunRecord& r, const std::string& out_dir) {
  std::string table;
  const auto row = [&](const char* name, const std::string& value) {
    char text[512];
    std::snprintf(text, sizeof text, "  %-12s %s\n", name, value.c_str());
    table += text;
  };
  const auto number = [](double value, const char* format) {
    char text[64];
    std::snprintf(text, sizeof text, format, value);
    return std::string(text);
  };
  std::string requests = std::to_string(r.n_done) + " done, " + std::to_string(r.n_failed) + " of them failed";
  if (r.n_done_before > 0) requests += ", " + std::to_string(r.n_done_before) + " done before";
  row("requests", requests + " (" + std::to_string(r.n_lines) + " lines)");
  row("tokens", std::to_string(r.n_prompt_tokens) + " in" +
                    (r.n_cached_tokens > 0 ? " (" + std::to_string(r.n_cached_tokens) + " from the prefix cache), " : ", ") +
                    std::to_string(r.n_generated_tokens) + " out");
  row("tokens/s", number(rate(r.n_prompt_tokens + r.n_generated_tokens, r.run_s), "%.1f") + " total, " +
                      number(rate(r.n_generated_tokens, r.run_s), "%.1f") + " out (" + number(r.run_s, "%.2f s)"));
  if (const double joules = energy_of_run(r.energy); !std::isnan(joules))
    row("energy",
        number(joules, "%.0f J") +
            (r.n_generated_tokens > 0 ? number(joules / static_cast<double>(r.n_generated_tokens), ", %.3g J a token out")
                                      : "") +
            " (" + std::to_string(r.energy.n_gpus) + " GPU(s))");
  row("layout", r.layout + ", " + r.device + " " + r.dtype + ", " + std::to_string(r.n_threads) + " thread(s) a rank");
  row("output", out_dir + "/completions.jsonl");
  if (r.n_failed > 0) row("", out_dir + "/errors.jsonl");
  row("", out_dir + "/timings.h5");
  row("", out_dir + "/run.json");
  return table;
}

}  // namespace lockstep
