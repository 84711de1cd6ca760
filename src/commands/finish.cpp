#include "commands/finish.h"

#include <hdf5.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/durable_file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/units.h"
#include "comm/mpi_check.h"
#include "commands/final_timings.h"
#include "commands/layout.h"
#include "records/step_batch.h"
#include "version.h"

namespace lockstep {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

RunRecord::Pairs options_of(const RunOptions& o) {
  const auto optional = [](const auto& value) { return value ? concat(*value) : std::string("default"); };
  return {{"model", o.model},
          {"input", o.input},
          {"output", o.output},
          {"limit", concat(o.limit)},
          {"max-batch-tokens", concat(o.max_batch_tokens)},
          {"max-sequences", concat(o.max_sequences)},
          {"max-model-len", concat(o.max_model_len)},
          {"prefix-cache", o.prefix_cache ? "on" : "off"},
          {"kv-memory", o.kv_memory ? format_bytes(*o.kv_memory) : "default"},
          {"swap-memory", o.swap_memory ? format_bytes(*o.swap_memory) : "default"},
          {"seed", concat(o.seed)},
          {"max-tokens", optional(o.max_tokens)},
          {"temperature", optional(o.temperature)},
          {"top-p", optional(o.top_p)},
          {"resume", o.resume},
          {"retry-errors", o.retry_errors ? "on" : "off"}};
}

RunRecord::Pairs library_versions() {
  char mpi[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(mpi, &length);
  const std::string mpi_text(mpi, static_cast<size_t>(length));
  return {{"mpi", mpi_text.substr(0, mpi_text.find_first_of(",\n"))},
          {"hdf5", concat(H5_VERS_MAJOR, ".", H5_VERS_MINOR, ".", H5_VERS_RELEASE)},
          {"compiler", __VERSION__}};
}

std::string layout_text(const Mesh& mesh) { return concat("tp ", mesh.tp, " x pp ", mesh.pp, " x dp ", mesh.dp); }

double seconds_of(const PhaseTimer& phases, std::string_view name) {
  for (const auto& phase : phases.phases())
    if (phase.name == name) return phase.seconds;
  return 0;
}

std::string run_json_path(const std::string& out_dir) { return out_dir + "/run.json"; }

// Whether the final files in the directory were made from exactly these lines.
bool final_files_are_of(const Job& job) {
  if (!fs::exists(job.out_dir + "/completions.jsonl") || !fs::exists(job.out_dir + "/errors.jsonl")) return false;
  const auto text = read_small_file(run_json_path(job.out_dir));
  if (!text) return false;
  const Json run = Json::parse(*text, nullptr, false);
  if (!run.is_object() || !run.contains("input") || !run["input"].is_object()) return false;
  return run["input"].value("digest", "") == job.input->digest().hex() && run.value("completions_digest", "") != "";
}

}  // namespace

std::vector<std::pair<std::string, std::string>> facts_of(const RunOptions& options, const ModelSource& model, const Ops& ops) {
  auto facts = model.files;
  facts.emplace_back("the program", digest_file("/proc/self/exe").hex());
  facts.emplace_back("the kernel class", ops.kernel_class());
  std::error_code error;
  const auto input_bytes = fs::file_size(options.input, error);
  facts.emplace_back(options.input, error ? error.message() : concat(input_bytes, " bytes"));
  return facts;
}

std::string about_run(const RunOptions& options, const Mesh& mesh, const MpiSession& mpi) {
  const Json about = {{"host", mpi.host},
                      {"ranks", mpi.size},
                      {"layout", layout_text(mesh)},
                      {"version", kVersion},
                      {"input", fs::absolute(options.input).string()},
                      {"limit", options.limit}};
  return about.dump(-1, ' ', false, Json::error_handler_t::replace);
}

RequestTiming timing_of(const FinishedLine& line, int64_t epoch, int replica) {
  RequestTiming t;
  t.line = line.line.line;
  t.custom_id = line.custom_id;
  t.attempt = static_cast<int32_t>(epoch);
  t.replica = replica;
  t.admitted_s = t.first_token_s = t.done_s = std::numeric_limits<double>::quiet_NaN();
  t.finish_reason = line.failed ? "error" : name_of(line.choices.front().reason);
  for (const Completion& choice : line.choices) {
    t.admitted_s = std::fmin(t.admitted_s, choice.admitted_s);  // of a NaN and a number the number
    if (!choice.tokens.empty()) t.first_token_s = std::fmin(t.first_token_s, choice.first_token_s);
    t.done_s = std::fmax(t.done_s, choice.done_s);
    t.n_prompt += choice.n_prompt;
    t.n_cached += choice.n_cached;
    t.n_generated += static_cast<int32_t>(choice.tokens.size());
  }
  return t;
}

RunRecord describe(Communicator& world, const RunOptions& options, const ModelSource& model, const Mesh& mesh,
                   const MpiSession& mpi, const Ops& ops, const Stage& stage, int64_t n_pages, int n_threads) {
  RunRecord r;
  for (const auto& bytes : world.exchange(std::as_bytes(std::span(mpi.host))))
    r.hosts.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  r.program = "lockstep";
  r.version = kVersion;
  r.libraries = library_versions();
  r.options = options_of(options);
  r.layout = layout_text(mesh);
  r.dp = mesh.dp, r.pp = mesh.pp, r.tp = mesh.tp;
  r.n_ranks = mpi.size;
  r.n_threads = n_threads;
  r.lag = lag_of(options, mesh);
  r.device = options.device;
  r.dtype = name_of(model.dtype);
  r.kernel_class = ops.kernel_class();
  r.model = model.name;
  r.model_format = model.checkpoint->format();
  r.model_digest = model.digest;
  r.model_files = model.files;
  r.input = options.input;
  r.weight_bytes = stage.weight_bytes();
  r.kv_bytes = static_cast<uint64_t>(n_pages) * stage.page_bytes();
  r.swap_bytes = stage.host_kv_bytes();
  r.warnings = model.checkpoint->warnings();
  return r;
}

EnergyRecord gather_energy(Communicator& world, const GpuEnergy& mine) {
  ByteWriter w;
  put(w, mine);
  std::vector<GpuEnergy> ranks;
  for (const auto& bytes : world.exchange(w.bytes())) {
    ByteReader r(bytes);
    ranks.push_back(get_gpu_energy(r));
  }
  return total_energy(ranks);
}

Outcome sum_outcomes(Communicator& world, const WorkTotals& mine, bool stopped) {
  ByteWriter w;
  w.put(mine);
  w.put(stopped);
  Outcome sum;
  for (const auto& bytes : world.exchange(w.bytes())) {
    ByteReader r(bytes);
    sum.totals += r.get<WorkTotals>();
    sum.stopped = r.get<bool>() || sum.stopped;
  }
  return sum;
}

ExitCode finish_run(Job& job, const Outcome& outcome, PhaseTimer& phases, RunRecord record) {
  const int64_t n_lines = static_cast<int64_t>(job.input->lines().size());
  record.input_digest = job.input->digest().hex();
  record.attempt = job.epoch;
  record.n_lines = n_lines;
  record.n_done_before = job.plan.n_done + job.plan.n_failed;
  record.n_done = outcome.totals.n_done;
  record.n_failed = outcome.totals.n_failed;
  record.n_prompt_tokens = outcome.totals.n_prompt_tokens;
  record.n_cached_tokens = outcome.totals.n_cached_tokens;
  record.n_generated_tokens = outcome.totals.n_generated_tokens;
  record.run_s = seconds_of(phases, "run");

  ExitCode code = ExitCode::stopped;
  const bool is_whole = record.n_done_before + record.n_done >= n_lines;
  if (is_whole) {
    const MergeResult merged = finish_job(job);
    record.completions_digest = merged.digest.hex();
    code = merged.n_failed > 0 ? ExitCode::some_failed : ExitCode::done;
  }
  phases.end();
  for (const auto& phase : phases.phases()) record.phases.push_back({phase.name, phase.seconds});
  record.exit_code = static_cast<int>(code);
  write_final_timings(job, is_whole, {{static_cast<int32_t>(job.epoch), 0, {"merge", seconds_of(phases, "merge")}}});
  atomic_write(run_json_path(job.out_dir), to_json(record));
  if (is_whole)
    std::fputs(to_table(record, job.out_dir).c_str(), stdout);
  else
    log_warning("stopped: ", record.n_done_before + record.n_done, " of ", n_lines, " lines done; the same command resumes");
  return code;
}

ExitCode already_finished(Job& job, const RunOptions& options,
                          const std::function<void(const std::function<void()>&)>& everyone) {
  ExitCode code = ExitCode::done;
  everyone([&] {
    if (job.input == nullptr) return;  // not rank 0
    if (job.plan.n_failed > 0) code = ExitCode::some_failed;
    if (final_files_are_of(job)) {
      log_info(options.output, ": all ", job.input->lines().size(), " lines are done, nothing to do");
      return;
    }
    const MergeResult merged = finish_job(job);
    const auto old = read_small_file(run_json_path(job.out_dir));
    Json run = old ? Json::parse(*old, nullptr, false) : Json::object();
    if (!run.is_object()) run = Json::object();
    run["input"] = {{"path", options.input}, {"digest", job.input->digest().hex()}, {"lines", job.input->lines().size()}};
    run["completions_digest"] = merged.digest.hex();
    run["exit_code"] = static_cast<int>(code);
    atomic_write(run_json_path(job.out_dir), run.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
    write_final_timings(job, true, {});
    log_info(options.output, ": all ", job.input->lines().size(), " lines were done, the final files are made");
  });
  return code;
}

}  // namespace lockstep
