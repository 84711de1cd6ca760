#include "commands/merge.h"

#include <nlohmann/json.hpp>

#include "base/durable_file.h"
#include "base/log.h"
#include "commands/agree.h"
#include "journal/directory_lock.h"
#include "journal/epoch.h"
#include "journal/input_file.h"
#include "journal/journal.h"
#include "journal/merge.h"

namespace lockstep {

namespace {

struct AskedInput {
  std::string path;
  int64_t limit = 0;
  bool operator==(const AskedInput&) const = default;
};

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

ExitCode merge_directories(const MergeOptions& options) {
  std::vector<JournalState> journals;
  AskedInput asked;
  for (const std::string& dir : options.directories) {
    journals.push_back(recover_journal(dir));
    const AskedInput input = input_of(dir, journals.back());
    if (journals.size() > 1 && input != asked)
      fail(ExitCode::usage, dir, " ran ", input.path, ", ", options.directories.front(), " ran ", asked.path);
    asked = input;
  }
  const DirectoryLock lock(options.directories.front());
  const InputFile input = InputFile::open(asked.path, asked.limit);
  const MergeResult result = merge_outputs(options.directories.front(), input.lines(), journals, options.partial);
  log_info(options.directories.front(), ": ", result.n_answered, " answered, ", result.n_failed, " failed, ", result.n_missing,
           " missing of ", result.n_lines, " lines");
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
