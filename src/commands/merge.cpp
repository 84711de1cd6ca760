#include "commands/merge.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/durable_file.h"
#include "base/log.h"
#include "commands/agree.h"
#include "commands/shards.h"
#include "journal/directory_lock.h"
#include "journal/epoch.h"
#include "journal/input_file.h"
#include "journal/journal.h"
#include "journal/manifest.h"
#include "journal/merge.h"

namespace lockstep {

namespace {

struct AskedInput {
  std::string path;
  int64_t limit = 0;
  bool operator==(const AskedInput&) const = default;
};

std::string described(const AskedInput& input) {
  return input.limit == 0 ? input.path : concat(input.path, " --limit ", input.limit);
}

// The newest epoch of a directory says which input its run read.
AskedInput input_of(const std::string& out_dir, const JournalState& journal) {
  if (journal.last_epoch == 0) fail(ExitCode::usage, out_dir, ": holds no journal of a run");
  const auto text = read_small_file(epoch_path(out_dir, journal.last_epoch));
  const auto epoch = nlohmann::json::parse(text.value_or(""), nullptr, false);
  if (!epoch.is_object() || !epoch.contains("about") || !epoch["about"].is_object())
    fail(ExitCode::usage, epoch_path(out_dir, journal.last_epoch), ": does not say which input was read");
  const auto& about = epoch["about"];
  if (!about.contains("input") || !about["input"].is_string() || !about.contains("limit") ||
      !about["limit"].is_number_integer())
    fail(ExitCode::usage, epoch_path(out_dir, journal.last_epoch), ": does not say which input was read");
  return {about["input"], about["limit"]};
}

// Whether one of the directories is `output`, under whatever name.
bool is_one_of(const std::string& output, const std::vector<std::string>& directories) {
  std::error_code error;
  return std::ranges::any_of(directories, [&](const std::string& d) { return std::filesystem::equivalent(output, d, error); });
}

struct Sources {
  std::vector<ShardDirectory> directories;  // shards in the order in which they take turns
  std::vector<JournalState> journals;       // of the same
  AskedInput input;
};

Sources open_sources(const MergeOptions& options) {
  Sources s;
  for (const std::string& dir : options.directories) {
    if (const auto manifest = read_manifest(dir))
      s.directories.push_back({dir, *manifest, shard_of(*manifest)});
    else if (options.partial)
      log_warning(dir, ": holds no journal of a run, left out");
    else
      fail(ExitCode::usage, dir, ": holds no journal of a run");
  }
  if (s.directories.empty()) fail(ExitCode::usage, "no directory holds the journal of a run");
  check_together(s.directories);
  std::ranges::stable_sort(s.directories, {}, [](const ShardDirectory& d) { return d.shard.shard; });
  for (const ShardDirectory& d : s.directories) {
    s.journals.push_back(recover_journal(d.path));
    const AskedInput input = input_of(d.path, s.journals.back());
    if (s.journals.size() > 1 && input != s.input)
      fail(ExitCode::usage, d.path, " ran ", described(input), ", ", s.directories.front().path, " ran ", described(s.input));
    s.input = input;
  }
  return s;
}

// Several shards have to be all of them, each with all of its lines.
void check_complete(const Sources& sources, const InputFile& input, bool partial) {
  std::string missing;
  const int64_t n_shards = sources.directories.front().shard.n_shards;
  for (const int64_t shard : missing_shards(sources.directories, input.lines().size()))
    missing += concat(missing.empty() ? "" : ", ", shard_name({shard, n_shards}));
  if (!missing.empty() && !partial)
    fail(ExitCode::usage, "no directory is given of shard ", missing, "; --partial leaves its lines out");
  if (!missing.empty()) log_warning("without shard ", missing);
  if (partial) return;
  const std::string unfinished = unfinished_shards(sources.directories, sources.journals, input.lines());
  if (!unfinished.empty()) fail(ExitCode::usage, unfinished, "; the same command resumes it, --partial leaves them out");
}

ExitCode merge_directories(const MergeOptions& options) {
  const Sources sources = open_sources(options);
  InputFile input = InputFile::open(sources.input.path, sources.input.limit);
  const InputShard shard = sources.directories.front().shard;
  if (sources.directories.size() > 1 && shard.n_shards > 1)
    check_complete(sources, input, options.partial);
  else  // one directory alone: the files of its own run
    input.keep_shard(shard.shard, shard.n_shards);

  const std::string output = options.output.empty() ? options.directories.front() : options.output;
  prepare_output(output);
  if (!is_one_of(output, options.directories) && read_manifest(output))
    fail(ExitCode::usage, output, ": holds another run; give another --output");
  const DirectoryLock lock(output);
  const MergeResult result = merge_outputs(output, input.lines(), sources.journals, options.partial, shard.n_shards > 1);
  log_info(output, ": ", result.n_answered, " answered, ", result.n_failed, " failed, ", result.n_missing, " missing of ",
           result.n_lines, " lines");
  return result.n_missing > 0 ? ExitCode::stopped : result.n_failed > 0 ? ExitCode::some_failed : ExitCode::done;
}

}  // namespace

ExitCode merge(const MpiSession& mpi, const MergeOptions& options) {
  if (mpi.rank != 0) return ExitCode::done;
  try {
    return merge_directories(options);
  } catch (const Error& e) {
    throw AgreedError{e.code, e.what()};
  }
}

}  // namespace lockstep
