#include "journal/manifest.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/durable_file.h"
#include "base/error.h"
#include "base/utf8.h"
#include "journal/epoch.h"
#include "journal/shard.h"

namespace lockstep {

namespace {

using Json = nlohmann::ordered_json;
constexpr int kFormat = 1;
constexpr std::array kFinalFiles = {"completions.jsonl", "errors.jsonl", "run.json", "timings.h5", "report.html"};

// As it reads back from JSON.
ManifestField as_stored(const ManifestField& field) { return {lossy_utf8(field.name), lossy_utf8(field.value)}; }

void write_manifest(const std::string& out_dir, const Manifest& manifest) {
  Json file = {{"format", kFormat}, {"first_epoch", manifest.first_epoch}, {"fields", Json::object()}};
  for (const ManifestField& field : manifest.fields) {
    const auto stored = as_stored(field);
    check(!file["fields"].contains(stored.name), "manifest: the field ", stored.name, " is given twice");
    file["fields"][stored.name] = stored.value;
  }
  atomic_write(manifest_path(out_dir), file.dump(2) + "\n");
}

// Shows a value in a message: quoted, and not a whole template.
std::string shown(const std::optional<std::string>& value) {
  if (!value) return "unset";
  constexpr size_t kMost = 60;
  return value->size() <= kMost ? "'" + *value + "'" : "'" + lossy_utf8(std::string_view(*value).substr(0, kMost)) + "...'";
}

bool exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(std::filesystem::symlink_status(path, error));
}

void remove_file(const std::string& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) fail_io(path, "remove", errno);
}

std::string final_file_of(const std::string& out_dir) {
  for (const char* file : kFinalFiles)
    if (exists(out_dir + "/" + file)) return file;
  return {};
}

}  // namespace

std::string manifest_path(const std::string& out_dir) { return journal_path(out_dir) + "/manifest.json"; }

std::optional<Manifest> read_manifest(const std::string& out_dir) {
  const std::string path = manifest_path(out_dir);
  const auto text = read_small_file(path);
  if (!text) return std::nullopt;
  const Json file = Json::parse(*text, nullptr, false);
  const auto require = [&](bool ok, const char* what) {
    if (!ok) fail(ExitCode::usage, path, ": ", what, "; --overwrite starts anew");
  };
  require(file.is_object() && file.contains("format"), "damaged");
  require(file["format"] == kFormat, "written by another version of this program");
  require(file.contains("first_epoch") && file["first_epoch"].is_number_unsigned() && file.contains("fields") &&
              file["fields"].is_object(),
          "damaged");
  Manifest manifest;
  manifest.first_epoch = file["first_epoch"].get<int64_t>();
  require(manifest.first_epoch >= 1, "damaged");
  for (const auto& [name, value] : file["fields"].items()) {
    require(value.is_string(), "damaged");
    manifest.fields.push_back({name, value.get<std::string>()});
  }
  return manifest;
}

std::vector<ManifestDifference> compare(const Manifest& manifest, std::span<const ManifestField> asked) {
  std::vector<ManifestDifference> differences;
  std::vector<ManifestField> old = manifest.fields;
  for (const ManifestField& field : asked) {
    const auto now = as_stored(field);
    const auto was = std::ranges::find(old, now.name, &ManifestField::name);
    if (was == old.end()) {
      differences.push_back({now.name, std::nullopt, now.value});
      continue;
    }
    if (was->value != now.value) differences.push_back({now.name, was->value, now.value});
    old.erase(was);
  }
  for (const ManifestField& field : old) differences.push_back({field.name, field.value, std::nullopt});
  return differences;
}

RunStart check_start(const std::string& out_dir, std::span<const ManifestField> asked, const StartOptions& options) {
  const std::string shards = list_shards(out_dir).empty() ? "" : "journal";
  const std::string final_file = final_file_of(out_dir);
  const bool any = exists(manifest_path(out_dir)) || !shards.empty() || !final_file.empty();
  if (!any) return RunStart::fresh;
  if (options.overwrite) return RunStart::anew;
  if (!options.resume)
    fail(ExitCode::usage, out_dir, ": holds a run already; --overwrite replaces it, --resume auto goes on with it");

  const auto manifest = read_manifest(out_dir);
  if (!manifest)
    fail(ExitCode::usage, out_dir, ": holds ", final_file.empty() ? "shards" : final_file,
         " but no journal/manifest.json that says what was asked; give another --output, or --overwrite");
  const auto differences = compare(*manifest, asked);
  if (differences.empty()) return RunStart::resume;
  std::string list;
  for (const auto& d : differences)
    list += concat(list.empty() ? "" : ", ", d.name, " (was ", shown(d.was), ", now ", shown(d.now), ")");
  fail(ExitCode::usage, out_dir, ": holds a run with other options: ", list,
       "; give the same options, another --output, or --overwrite to start anew");
}

void begin_run(const std::string& out_dir, std::span<const ManifestField> asked, RunStart start) {
  const std::vector<ShardName> shards = list_shards(out_dir);
  const auto remove_shards_before = [&](int64_t epoch) {
    if (shards.empty() || shards.front().epoch >= epoch) return;
    for (const ShardName& name : shards)
      if (name.epoch < epoch) remove_file(shard_path(out_dir, name));
    fsync_directory(journal_path(out_dir));
  };
  if (start == RunStart::resume) {  // a crash may have left shards of a run that was overwritten
    const auto manifest = read_manifest(out_dir);
    check(manifest.has_value(), out_dir, ": a run to resume has a manifest");
    return remove_shards_before(manifest->first_epoch);
  }
  Manifest manifest{1, {asked.begin(), asked.end()}};
  if (start == RunStart::fresh) return write_manifest(out_dir, manifest);

  for (const char* file : kFinalFiles) remove_file(out_dir + "/" + file);
  fsync_directory(out_dir);
  // Epoch numbers go on counting, so that no writer of the old run can take part in the new one.
  manifest.first_epoch = read_epochs(out_dir).last_epoch + 1;
  if (!shards.empty()) manifest.first_epoch = std::max(manifest.first_epoch, shards.back().epoch + 1);
  write_manifest(out_dir, manifest);
  remove_shards_before(manifest.first_epoch);
}

OutputDirectory prepare_output(const std::string& out_dir) {
  if (out_dir.empty()) fail(ExitCode::usage, "--output: an empty name");
  OutputDirectory result;
  std::error_code error;
  const auto status = std::filesystem::status(out_dir, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_directory(status))
    fail(ExitCode::usage, out_dir, ": --output is a directory, this is a file");
  result.created = !std::filesystem::exists(status);
  std::filesystem::create_directories(journal_path(out_dir) + "/epochs", error);
  if (error == std::errc::not_a_directory || error == std::errc::file_exists)
    fail(ExitCode::usage, out_dir, ": a part of this path is a file");
  if (error) fail_io(out_dir, "create", error.value());

  for (const std::string& directory : {out_dir, journal_path(out_dir), journal_path(out_dir) + "/epochs"}) {
    const std::string probe = directory + "/.probe-" + random_token();
    FileHandle file = open_file(probe, O_WRONLY | O_CREAT | O_EXCL);
    const int write_error = try_write_all(file.get(), "lockstep\n");
    const int close_error = file.close();
    ::unlink(probe.c_str());
    if (write_error != 0 || close_error != 0) fail_io(probe, "write", write_error != 0 ? write_error : close_error);
    fsync_directory(directory);
  }
  if (result.created) fsync_directory(parent_of(out_dir));
  struct statvfs space {};
  if (::statvfs(out_dir.c_str(), &space) == 0) result.free_bytes = uint64_t{space.f_bavail} * space.f_frsize;
  return result;
}

}  // namespace lockstep
