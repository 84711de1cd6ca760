#include "cli.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <string_view>

#include "base/error.h"
#include "base/units.h"
#include "version.h"

namespace lockstep {

namespace {

// ---- what this version lacks ----
// Options that are known and refused: nothing is accepted silently that has no effect. A feature that lands takes its row away.
struct Unavailable {
  const char* option;
  const char* value;  // "": any
  bool (*asked)(const RunOptions&);
};
constexpr Unavailable kUnavailable[] = {
    {"--preflight", "quick, standard, deep", [](const RunOptions& o) { return o.preflight != "off"; }},
    {"--walltime", "", [](const RunOptions& o) { return o.walltime_s.has_value(); }},
    {"--grace", "", [](const RunOptions& o) { return o.grace_s.has_value(); }},
    {"--hang-timeout", "", [](const RunOptions& o) { return o.hang_timeout_s.has_value(); }},
    {"--metrics", "", [](const RunOptions& o) { return !o.metrics.empty(); }},
};
constexpr std::string_view kUnavailableCommands[] = {"preflight", "plan"};

void refuse_unavailable(const RunOptions& options) {
  for (const Unavailable& u : kUnavailable)
    if (u.asked(options))
      fail(ExitCode::usage, u.option, *u.value ? " " : "", u.value, ": not available in lockstep ", kVersion, "; leave it out");
}

void mark_unavailable(CLI::App& app) {
  for (const Unavailable& u : kUnavailable)
    if (CLI::Option* option = app.get_option_no_throw(u.option))
      option->description(concat(option->get_description(), "  [not in this version", *u.value ? ": " : "", u.value, "]"));
}

// ---- kinds of options ----
// Values are read by our own functions, so that "010", "1e3" or "nan" mean one thing, and messages say what is right.
CLI::Option* add(CLI::App& app, const std::string& name, const std::string& type, const std::string& description,
                 const std::function<void(const std::string&)>& take) {
  return app.add_option_function<std::string>(name, take, description)->type_name(type);
}

template <class T>
std::optional<T> number_in(const std::string& text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || text.empty()) return std::nullopt;
  return value;
}

template <class Field, class Value>
CLI::Option* add_integer(CLI::App& app, const std::string& name, Field& field, Value low, Value high,
                         const std::string& description) {
  return add(app, name, "N", description, [&field, name, low, high](const std::string& text) {
    const auto value = number_in<Value>(text);
    if (!value || *value < low || *value > high)
      throw CLI::ValidationError(name, concat(text, " is not a whole number from ", low, " to ", high));
    field = *value;
  });
}

// range: as shown to people; above: whether `low` itself is left out.
template <class Field>
CLI::Option* add_real(CLI::App& app, const std::string& name, const std::string& type, Field& field, double low, double high,
                      bool above, const std::string& description) {
  return add(app, name, type, description, [&field, name, low, high, above](const std::string& text) {
    const auto value = number_in<double>(text);
    if (!value || !(above ? *value > low : *value >= low) || !(*value <= high))
      throw CLI::ValidationError(name, concat(text, " is not a number in ", above ? "(" : "[", low, ", ", high, "]"));
    field = *value;
  });
}

CLI::Option* add_choice(CLI::App& app, const std::string& name, std::string& field, const std::vector<std::string>& choices,
                        const std::string& description) {
  std::string type;
  for (const std::string& choice : choices) type += concat(type.empty() ? "" : "|", choice);
  return add(app, name, type, description, [&field, name, choices, type](const std::string& text) {
    for (const std::string& choice : choices)
      if (text == choice) {
        field = choice;
        return;
      }
    throw CLI::ValidationError(name, concat(text, " is none of ", type));
  });
}

CLI::Option* add_on_off(CLI::App& app, const std::string& name, bool& field, const std::string& description) {
  return add(app, name, "on|off", description, [&field, name](const std::string& text) {
    if (text != "on" && text != "off") throw CLI::ValidationError(name, concat(text, " is none of on|off"));
    field = text == "on";
  });
}

CLI::Option* add_seconds(CLI::App& app, const std::string& name, std::optional<double>& field, const std::string& description) {
  return add(app, name, "TIME", description, [&field, name](const std::string& text) {
    field = parse_seconds(text);
    if (!field) throw CLI::ValidationError(name, concat(text, " is no time; write 90s, 30m, 4h or 1:30:00"));
  });
}

CLI::Option* add_text(CLI::App& app, const std::string& name, const std::string& type, std::string& field,
                      const std::string& description) {
  return add(app, name, type, description, [&field, name](const std::string& text) {
    if (text.empty()) throw CLI::ValidationError(name, "is empty");
    field = text;
  });
}

// ---- lockstep run ----
// SLURM_ARRAY_TASK_ID counts from 0 or from 1, as the user said: both give each line to one shard, since 0 and N are the same.
void take_shard(const std::string& text, RunOptions& o) {
  constexpr int64_t kMostShards = 1000000;
  const size_t slash = text.find('/');
  const auto shard = number_in<int64_t>(text.substr(0, slash));
  const auto n_shards = number_in<int64_t>(slash == std::string::npos ? "" : text.substr(slash + 1));
  if (!shard || !n_shards) throw CLI::ValidationError("--shard", concat(text, " is not I/N; write 1/3, 2/3, 3/3"));
  if (*n_shards < 1 || *n_shards > kMostShards)
    throw CLI::ValidationError("--shard", concat(text, ": N is not a whole number from 1 to ", kMostShards));
  if (*shard < 0 || *shard > *n_shards)
    throw CLI::ValidationError("--shard", concat(text, ": I is not a whole number from 1 to ", *n_shards, " or from 0 to ",
                                                 *n_shards - 1, "; is the job array as large as N?"));
  o.shard = *shard % *n_shards;
  o.n_shards = *n_shards;
}

constexpr int kInt32Max = std::numeric_limits<int32_t>::max();

void add_work_options(CLI::App& app, RunOptions& o) {
  const auto group = [](CLI::Option* option) { option->group("What to run"); };
  group(add_text(app, "--model", "PATH", o.model, "directory with safetensors and tokenizer, or a GGUF file")->required());
  group(
      add_text(app, "--input", "FILE", o.input, "JSONL, one request a line (OpenAI Batch, or {\"prompt\": ...})")->required());
  group(add_text(app, "--output", "DIR", o.output, "made if missing; started again with the same words, a run resumes")
            ->required());
  group(add_integer(app, "--limit", o.limit, int64_t{1}, std::numeric_limits<int64_t>::max(), "first N requests only (all)"));
  group(add(app, "--shard", "I/N",
            "every Nth line, from line I on, for job arrays; I from 1 to N or from 0 to N-1 (0 is the same shard as N)",
            [&o](const std::string& text) { take_shard(text, o); }));
}

void add_layout_options(CLI::App& app, RunOptions& o) {
  const auto group = [](CLI::Option* option) { option->group("Layout: tp x pp x dp = ranks; what is left out is derived"); };
  group(add_integer(app, "--tp", o.tp, 1, 65536, "ranks that share each layer (tensor parallel)"));
  group(add_integer(app, "--pp", o.pp, 1, 65536, "ranks that share the layers one after the other (pipeline)"));
  group(add_integer(app, "--dp", o.dp, 1, 65536, "replicas that share the input lines (data parallel)"));
}

void add_machine_options(CLI::App& app, RunOptions& o) {
  const auto group = [](CLI::Option* option) { option->group("Machine"); };
  group(add_choice(app, "--device", o.device, {"auto", "cpu", "cuda"}, "what computes (auto)"));
  group(add_choice(app, "--dtype", o.dtype, {"auto", "f32", "bf16"}, "of weights, activations and KV (auto: the model's)"));
  group(add_choice(app, "--load-format", o.load_format, {"auto", "dummy"}, "dummy: random weights (auto)"));
  group(add_integer(app, "--max-batch-tokens", o.max_batch_tokens, int64_t{1}, int64_t{1} << 20,
                    "new tokens a step (2048; GPU 8192)"));
  group(add_integer(app, "--max-sequences", o.max_sequences, int64_t{1}, int64_t{1} << 16,
                    "that a replica works on at a time (64; GPU 256 to 512, by the input)"));
  group(add_integer(app, "--max-model-len", o.max_model_len, int64_t{1}, int64_t{kInt32Max},
                    "prompt + completion, tokens (the model's)"));
  CLI::Option* kv_memory =
      add(app, "--kv-memory", "SIZE", "of a rank, for KV pages: 8G, 512M; G = 1024^3 bytes, GB = 1000^3",
          [&o](const std::string& text) {
            o.kv_memory = parse_bytes(text);
            if (!o.kv_memory || *o.kv_memory == 0)
              throw CLI::ValidationError("--kv-memory", concat(text, " is no size; write 8G, 512M or 1.5GiB"));
          });
  CLI::Option* fraction = add_real(app, "--memory-fraction", "F", o.memory_fraction, 0, 1, true,
                                   "of the node's free memory for KV pages, instead (0.5; of a GPU's 0.9)");
  kv_memory->excludes(fraction)->option_text("SIZE");
  fraction->option_text("F");
  group(kv_memory);
  group(fraction);
  group(add(app, "--swap-memory", "SIZE",
            "of the host for a rank's preempted sequences, else computed again; taken when needed (0; GPU up to 16G)",
            [&o](const std::string& text) {
              o.swap_memory = parse_bytes(text);
              if (!o.swap_memory) throw CLI::ValidationError("--swap-memory", concat(text, " is no size; write 8G, 512M or 0"));
            }));
  group(add_integer(app, "--threads", o.threads, 1, 4096, "of a rank (its cores, shared fairly with the node's other ranks)"));
  group(add_on_off(app, "--prefix-cache", o.prefix_cache, "keep the KV of common prompt beginnings (on)"));
  group(add_on_off(app, "--graphs", o.graphs, "CUDA graphs of steps without prefill (on)"));
}

void add_request_options(CLI::App& app, RunOptions& o) {
  const auto group = [](CLI::Option* option) { option->group("Requests: used where a line says nothing"); };
  group(add_integer(app, "--seed", o.seed, uint64_t{0}, std::numeric_limits<uint64_t>::max(), "of all random draws (0)"));
  group(add_integer(app, "--max-tokens", o.max_tokens, int64_t{0}, int64_t{kInt32Max},
                    "tokens to generate (completions 16, chat: the rest)"));
  group(add_real(app, "--temperature", "T", o.temperature, 0, 2, false, "0: the most likely token (the model's, else 1)"));
  group(add_real(app, "--top-p", "P", o.top_p, 0, 1, true,
                 "the most likely tokens that together have probability P (the model's, else 1)"));
  group(add_text(app, "--chat-template", "FILE", o.chat_template, "Jinja (the model's)"));
  group(add_choice(app, "--content-special-tokens", o.content_special_tokens, {"text", "parse"},
                   "special tokens inside messages (text)"));
  group(add_text(app, "--served-model-name", "NAME", o.served_model_name, "`model` in the answers (last part of --model)"));
  group(add_text(app, "--require-model", "NAME", o.require_model, "lines with another `model` are errors (any is fine)"));
}

void add_resume_options(CLI::App& app, RunOptions& o) {
  const auto group = [](CLI::Option* option) { option->group("An output directory that exists"); };
  group(add_choice(app, "--resume", o.resume, {"auto", "never"}, "go on with what is left, or refuse (auto)"));
  group(app.add_flag("--overwrite", o.overwrite, "start anew; the old results go once all checks have passed"));
  group(app.add_flag("--retry-errors", o.retry_errors, "run failed lines again"));
  group(app.add_flag("--takeover", o.takeover, "although a job on another host seems to hold it"));
}

void add_job_options(CLI::App& app, RunOptions& o) {
  const auto group = [](CLI::Option* option) { option->group("The job"); };
  group(
      add_choice(app, "--preflight", o.preflight, {"off", "quick", "standard", "deep"}, "check devices and links first (off)"));
  group(add_seconds(app, "--walltime", o.walltime_s, "stop in time for this limit: 90s, 30m, 4h, 1:30:00"));
  group(add_seconds(app, "--grace", o.grace_s, "left before the limit"));
  group(add_seconds(app, "--hang-timeout", o.hang_timeout_s, "without any progress: exit 86"));
  group(add_text(app, "--metrics", "FILE", o.metrics, "counters, rewritten now and then"));
  group(add_choice(app, "--progress", o.progress, {"auto", "off"}, "lines on stderr (auto)"));
  add_integer(app, "--lag", o.lag, 0, 64, "steps the scheduler runs behind the sampler")->group("");
}

std::string usage_hint(std::string_view command) {
  return concat(" (lockstep ", command, command.empty() ? "" : " ", "--help)");
}

}  // namespace

Command parse_command_line(int argc, const char* const* argv) {
  Command command;

  CLI::App app("Offline LLM inference: a file of prompts and a model in, a file of completions out.", "lockstep");
  app.set_version_flag("--version", concat("lockstep ", kVersion));
  app.require_subcommand(0, 1);
  app.footer(
      "lockstep COMMAND --help lists a command's options. With several ranks: mpirun -np 4 lockstep run ...\n"
      "Exit codes: 0 done, 20 done but some lines failed, 75 stopped (run again to resume), 2 usage, 3 unreadable input or "
      "model,\n"
      "10-13 hardware, environment, communication, preflight, 74 output I/O, 86 hang, 87 rank lost, 1 anything else");

  CLI::App* run = app.add_subcommand("run", "complete every line of the input");
  run->footer("Example: lockstep run --model models/smol --input prompts.jsonl --output out --max-tokens 64");
  add_work_options(*run, command.run);
  add_layout_options(*run, command.run);
  add_machine_options(*run, command.run);
  add_request_options(*run, command.run);
  add_resume_options(*run, command.run);
  add_job_options(*run, command.run);
  mark_unavailable(*run);

  CLI::App* merge = app.add_subcommand("merge", "write the final files of an output directory; join several directories");
  merge->add_option("DIR", command.merge.directories, "output directories of runs")
      ->required()
      ->check([](const std::string& directory) { return directory.empty() ? std::string("an empty name") : std::string(); });
  add_text(*merge, "--output", "DIR", command.merge.output, "for the final files, made if missing (the first directory)");
  merge->add_flag("--partial", command.merge.partial, "also where lines are missing, or whole shards");
  merge->footer(
      "All shards of an input together make the files of a run without shards, byte for byte.\n"
      "Example: lockstep merge out-1 out-2 out-3 --output out");

  CLI::App* report = app.add_subcommand("report", "a page of plots from the timings of a run: DIR/report.html");
  add_text(*report, "DIR", "", command.report.directory, "output directory of a run, finished or not")->required();
  add_text(*report, "--output", "FILE", command.report.output, "instead of DIR/report.html");
  report->footer("Example: lockstep report out");
  for (CLI::App* a : {&app, run, merge, report}) {
    a->get_formatter()->column_width(38);
    a->get_formatter()->label("REQUIRED", "(required)");
  }

  const std::string_view first = argc > 1 ? argv[1] : "";
  for (const std::string_view name : kUnavailableCommands)
    if (first == name) fail(ExitCode::usage, "lockstep ", name, ": not available in lockstep ", kVersion);
  if (first.empty()) fail(ExitCode::usage, "a command is missing: run, merge or report", usage_hint(""));
  if (first[0] != '-' && first != "run" && first != "merge" && first != "report")
    fail(ExitCode::usage, "unknown command: ", first, "; there are run, merge and report", usage_hint(""));

  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForVersion& e) {
    command.text = concat(e.what(), "\n");
    return command;
  } catch (const CLI::CallForHelp&) {
    for (const char c : app.help())  // CLI11 leaves two empty lines between groups
      if (!(c == '\n' && command.text.ends_with("\n\n"))) command.text += c;
    return command;
  } catch (const CLI::ParseError& e) {
    fail(ExitCode::usage, e.what(),
         usage_hint(run->parsed()      ? "run"
                    : merge->parsed()  ? "merge"
                    : report->parsed() ? "report"
                                       : ""));
  }

  if (merge->parsed()) {
    command.kind = Command::Kind::merge;
  } else if (report->parsed()) {
    command.kind = Command::Kind::report;
  } else if (run->parsed()) {
    command.kind = Command::Kind::run;
    refuse_unavailable(command.run);
    if (command.run.overwrite && command.run.resume == "never")
      command.notes.push_back("--resume never changes nothing: --overwrite starts anew");
  } else {
    fail(ExitCode::usage, "a command is missing: run, merge or report", usage_hint(""));
  }
  return command;
}

}  // namespace lockstep
