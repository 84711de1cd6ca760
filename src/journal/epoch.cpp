#include "journal/epoch.h"

#include <fcntl.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <vector>

#include "base/durable_file.h"
#include "base/error.h"

namespace lockstep {

namespace {

using Json = nlohmann::ordered_json;

std::string epochs_path(const std::string& out_dir) { return journal_path(out_dir) + "/epochs"; }

// "0003.json" gives 3.
std::optional<int64_t> parse_epoch_name(const std::string& file) {
  int64_t epoch = 0;
  const char* end = file.data() + file.size();
  const auto [rest, error] = std::from_chars(file.data(), end, epoch);
  if (error != std::errc() || epoch < 1 || epoch > 999999999999999999 || std::string_view(rest, end) != ".json") return {};
  return epoch;
}

std::vector<int64_t> list_epochs(const std::string& out_dir) {
  std::vector<int64_t> epochs;
  std::error_code error;
  const std::string path = epochs_path(out_dir);
  std::filesystem::directory_iterator entry(path, error);
  if (error == std::errc::no_such_file_or_directory) return epochs;
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error))
    if (const auto epoch = parse_epoch_name(entry->path().filename().string())) epochs.push_back(*epoch);
  if (error) fail_io(path, "list", error.value());
  std::sort(epochs.begin(), epochs.end());
  return epochs;
}

std::string seals_crc(const Json& sealed) {
  char text[9];
  std::snprintf(text, sizeof text, "%08x", crc32c(sealed.dump()));
  return text;
}

// nullopt where the file is torn, damaged, or was never completed: then no writer of that epoch ever began.
std::optional<std::map<ShardName, uint64_t>> read_seals(const std::string& path) {
  const auto text = read_small_file(path, size_t{256} << 20);
  if (!text) return std::nullopt;
  const Json file = Json::parse(*text, nullptr, false);
  if (!file.is_object() || !file.contains("sealed") || !file["sealed"].is_object()) return std::nullopt;
  const Json& sealed = file["sealed"];
  if (file.value("crc", Json()) != seals_crc(sealed)) return std::nullopt;
  std::map<ShardName, uint64_t> lengths;
  for (const auto& [key, value] : sealed.items()) {
    const auto name = parse_shard_name(key);
    if (!name || !value.is_number_unsigned()) return std::nullopt;
    lengths[*name] = value.get<uint64_t>();
  }
  return lengths;
}

}  // namespace

std::string epoch_path(const std::string& out_dir, int64_t epoch) {
  char file[40];
  std::snprintf(file, sizeof file, "/%04lld.json", static_cast<long long>(epoch));
  return epochs_path(out_dir) + file;
}

std::optional<uint64_t> EpochSeals::length_of(const ShardName& name) const {
  if (name.epoch >= sealed_below) return std::nullopt;
  const auto at = lengths.find(name);
  return at == lengths.end() ? 0 : at->second;
}

EpochSeals read_epochs(const std::string& out_dir) {
  EpochSeals seals;
  const std::vector<int64_t> epochs = list_epochs(out_dir);
  if (!epochs.empty()) seals.last_epoch = epochs.back();
  for (auto epoch = epochs.rbegin(); epoch != epochs.rend(); ++epoch) {
    auto lengths = read_seals(epoch_path(out_dir, *epoch));
    if (!lengths) continue;
    seals.sealed_below = *epoch;
    seals.lengths = std::move(*lengths);
    break;
  }
  return seals;
}

int64_t open_epoch(const std::string& out_dir, const JournalState& state, const std::string& about) {
  const int64_t epoch = state.last_epoch + 1;
  const std::string path = epoch_path(out_dir, epoch);
  Json file = {{"epoch", epoch}, {"about", Json::parse(about, nullptr, false)}, {"token", random_token()}, {"sealed", nullptr}};
  check(file["about"].is_object(), "epoch: about is not a JSON object: ", about);

  std::error_code error;
  if (std::filesystem::create_directories(epochs_path(out_dir), error)) fsync_directory(journal_path(out_dir));
  if (error) fail_io(epochs_path(out_dir), "create", error.value());
  if (!create_exclusive(path, file.dump() + "\n"))
    fail(ExitCode::usage, out_dir, ": another job started here at the same moment (", path, " exists)");

  Json sealed = Json::object();
  for (const ShardName& name : list_shards(out_dir)) {
    if (name.epoch < state.first_epoch || name.epoch >= epoch) continue;
    const auto at = std::ranges::lower_bound(state.shards, name, {}, &ShardState::name);
    const ShardState* known = at != state.shards.end() && at->name == name ? &*at : nullptr;
    if (known && known->sealed) {
      if (known->sealed_length > 0) sealed[name.file()] = known->sealed_length;
      continue;
    }
    // What a killed process wrote may still be only in memory: on disk first, since from now on it counts as done.
    const std::string shard = shard_path(out_dir, name);
    const FileHandle handle = open_file(shard, O_RDONLY);
    if (const int sync_error = try_sync(handle.get()); sync_error != 0) fail_io(shard, "fdatasync", sync_error);
    const uint64_t from = known ? known->valid_end : 0;
    sealed[name.file()] = scan_shard(shard, name.epoch, from, UINT64_MAX, [](const ScannedLine&) {}).valid_end;
  }
  file["crc"] = seals_crc(sealed);
  file["sealed"] = std::move(sealed);
  atomic_write(path, file.dump() + "\n");
  return epoch;
}

}  // namespace lockstep
