// The command line as plain structs. Names, units and defaults are the README's; `lockstep run --help` prints them.
// Not for: deciding what depends on model or machine (commands/).
//   Command command = parse_command_line(argc, argv);   throws Error (usage)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

struct RunOptions {
  std::string model, input, output;

  std::optional<int> tp, pp, dp;          // left out: derived from the number of ranks
  std::string device = "auto";            // auto | cpu | cuda
  std::string dtype = "auto";             // auto | f32 | bf16
  std::string load_format = "auto";       // auto | dummy
  int64_t max_batch_tokens = 0;           // new tokens a step; 0: the device's default
  int64_t max_sequences = 0;              // a replica works on at a time; 0: by device and input
  int64_t max_model_len = 0;              // prompt + completion, tokens; 0: the model's
  std::optional<uint64_t> kv_memory;      // bytes a rank
  std::optional<double> memory_fraction;  // for KV pages: of the node's free memory (0.5), or of a GPU's (0.9)
  std::optional<uint64_t> swap_memory;    // bytes a rank, of the host
  int threads = 0;                        // a rank; 0: derived
  bool prefix_cache = true;
  bool graphs = true;  // CUDA only

  uint64_t seed = 0;
  std::optional<int64_t> max_tokens;  // these three: where a request is silent
  std::optional<double> temperature, top_p;
  std::string chat_template;                    // file
  std::string content_special_tokens = "text";  // text | parse
  std::string served_model_name, require_model;

  int64_t limit = 0;                // first N lines; 0: all
  int64_t shard = 0, n_shards = 1;  // of those, the lines whose number has the remainder `shard` by n_shards
  std::string resume = "auto";      // auto | never
  bool overwrite = false, retry_errors = false, takeover = false;

  std::string preflight = "off";  // off | quick | standard | deep
  std::optional<double> walltime_s, grace_s, hang_timeout_s;
  std::string metrics;            // file
  std::string progress = "auto";  // auto | off
  std::optional<int> lag;         // of the scheduler, for tests
};

struct MergeOptions {
  std::vector<std::string> directories;
  std::string output;    // where the final files go; empty: into the first directory
  bool partial = false;  // also where lines or shards are missing
};

struct ReportOptions {
  std::string directory;
  std::string output;  // file; empty: report.html in the directory
};

struct Command {
  enum class Kind { run, merge, report, text };
  Kind kind = Kind::text;
  RunOptions run;
  MergeOptions merge;
  ReportOptions report;
  std::string text;                // help or version, to be printed on stdout
  std::vector<std::string> notes;  // options that were accepted and change nothing here; to be logged
};

Command parse_command_line(int argc, const char* const* argv);

}  // namespace lockstep
