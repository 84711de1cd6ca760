// run.json: what ran, where, with what, and what came out; for people and for scripts that compare runs.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "telemetry/energy.h"
#include "telemetry/timing_records.h"

namespace lockstep {

struct RunRecord {
  using Pairs = std::vector<std::pair<std::string, std::string>>;

  std::string program, version;  // "lockstep", "0.1.0"
  Pairs libraries;               // name, version
  Pairs options;                 // as given or derived
  std::string layout;            // "tp 2 x pp 1 x dp 1"
  int dp = 1, pp = 1, tp = 1, n_ranks = 1, n_threads = 1, lag = 0;
  std::vector<std::string> hosts;  // [n_ranks]
  std::string device, dtype, kernel_class;
  std::string model, model_format, model_digest;
  Pairs model_files;  // base name, digest
  std::string input, input_digest;
  int64_t attempt = 0;                                                       // epoch of this run, from 1
  int64_t n_lines = 0, n_done_before = 0;                                    // of the input; done by earlier runs
  int64_t n_done = 0, n_failed = 0;                                          // by this run
  int64_t n_prompt_tokens = 0, n_cached_tokens = 0, n_generated_tokens = 0;  // cached: of the prompts, not computed again
  double run_s = 0;                                                          // of the phase that generates
  std::vector<PhaseTiming> phases;                                           // of rank 0
  EnergyRecord energy;                                                       // of all ranks' GPUs
  uint64_t weight_bytes = 0, kv_bytes = 0, swap_bytes = 0;                   // of rank 0; swap: of the host, what was taken
  std::string completions_digest;                                            // empty where there is no final file yet
  int exit_code = 0;
  std::vector<std::string> warnings;
};

std::string to_json(const RunRecord& record);                               // indented, one trailing newline
std::string to_table(const RunRecord& record, const std::string& out_dir);  // what the run prints at its end

}  // namespace lockstep
