// What a directory's run was asked: OUT/journal/manifest.json, the fields that change results, written once before the
// first epoch. Decides whether a run may start here, go on, or replace what is there; which lines then run is resume.h.
//   prepare_output(out);  DirectoryLock lock(out);
//   RunStart start = check_start(out, fields, {.overwrite = o.overwrite});   ... model loads, all other checks pass ...
//   begin_run(out, fields, start);  recover_journal, plan_resume, open_epoch
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

struct ManifestField {
  std::string name, value;
  bool operator==(const ManifestField&) const = default;
};

struct Manifest {
  int64_t first_epoch = 1;  // shards of lower epochs are from a run that was overwritten
  std::vector<ManifestField> fields;
};

std::string manifest_path(const std::string& out_dir);

// nullopt: none. Error (usage) where it cannot be understood.
std::optional<Manifest> read_manifest(const std::string& out_dir);

struct ManifestDifference {
  std::string name;
  std::optional<std::string> was, now;  // nullopt: not a field then
};
std::vector<ManifestDifference> compare(const Manifest& manifest, std::span<const ManifestField> asked);

struct StartOptions {
  bool resume = true;      // false: go on with nothing (--resume never)
  bool overwrite = false;  // start anew whatever is there
};
enum class RunStart : uint8_t { fresh, resume, anew };

// Changes nothing. Error (usage) where the directory holds results that this run would not give: another run's (names the
// options that differ), or final files without a journal.
RunStart check_start(const std::string& out_dir, std::span<const ManifestField> asked, const StartOptions& options);

// Under the directory's lock, after every check of the run. fresh: writes the manifest. resume: nothing. anew: removes the
// final files, then replaces the manifest (at that moment the old run is over), then removes the old shards: a crash between
// leaves the old run's journal whole or the new run begun.
void begin_run(const std::string& out_dir, std::span<const ManifestField> asked, RunStart start);

struct OutputDirectory {
  bool created = false;
  uint64_t free_bytes = 0;  // for this user
};
// Creates `out_dir` with its parents and journal/ where missing, and checks by writing that files can be made. Error (usage)
// where it is a file, Error (output_io) where it cannot be written.
OutputDirectory prepare_output(const std::string& out_dir);

}  // namespace lockstep
