#include "commands/shards.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace lockstep {

namespace {

constexpr size_t kMostNamed = 5;

std::string list_of(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMostNamed); ++i) text += concat(i > 0 ? ", " : "", names[i]);
  return names.size() > kMostNamed ? concat(text, ", and ", names.size() - kMostNamed, " more") : text;
}

std::string described(const ShardDirectory& directory) {
  return directory.shard.n_shards == 1 ? concat(directory.path, " (all lines)")
                                       : concat(directory.path, " (shard ", shard_name(directory.shard), ")");
}

}  // namespace

std::string shard_name(const InputShard& s) { return concat(s.shard == 0 ? s.n_shards : s.shard, "/", s.n_shards); }

InputShard shard_of(const Manifest& manifest) {
  const auto field = std::ranges::find(manifest.fields, kShardField, &ManifestField::name);
  if (field == manifest.fields.end()) return {};
  InputShard s;
  const char* const end = field->value.data() + field->value.size();
  const auto [slash, error] = std::from_chars(field->value.data(), end, s.shard);
  const bool more = error == std::errc() && slash != end && *slash == '/';
  const auto [rest, error_n] = std::from_chars(more ? slash + 1 : end, end, s.n_shards);
  if (!more || error_n != std::errc() || rest != end || s.n_shards < 2 || s.shard < 1 || s.shard > s.n_shards)
    fail(ExitCode::usage, "a manifest with the shard '", field->value, "', which is none");
  s.shard %= s.n_shards;
  return s;
}

void check_together(std::span<const ShardDirectory> directories) {
  const ShardDirectory& first = directories.front();
  for (const ShardDirectory& d : directories) {
    if (d.shard.n_shards != first.shard.n_shards)
      fail(ExitCode::usage, described(first), " and ", described(d), " are not of one job array");
    std::string differences;
    for (const auto& difference : compare(first.manifest, d.manifest.fields))
      if (difference.name != kShardField)
        differences += concat(differences.empty() ? "" : ", ", difference.name, " ('", difference.was.value_or("unset"),
                              "' and '", difference.now.value_or("unset"), "')");
    if (!differences.empty()) fail(ExitCode::usage, first.path, " and ", d.path, " ran with different options: ", differences);
  }
  if (first.shard.n_shards == 1) return;
  std::vector<const ShardDirectory*> order;
  for (const ShardDirectory& d : directories) order.push_back(&d);
  std::ranges::stable_sort(order, {}, [](const ShardDirectory* d) { return d->shard.shard; });
  for (size_t i = 1; i < order.size(); ++i)
    if (order[i]->shard == order[i - 1]->shard)
      fail(ExitCode::usage, order[i - 1]->path, " and ", order[i]->path, " are both shard ", shard_name(order[i]->shard));
}

std::vector<int64_t> missing_shards(std::span<const ShardDirectory> directories, size_t n_lines) {
  const int64_t n_shards = directories.front().shard.n_shards;
  std::vector<bool> known(static_cast<size_t>(n_shards));
  for (const ShardDirectory& d : directories) known[static_cast<size_t>(d.shard.shard)] = true;
  std::vector<int64_t> missing;
  for (int64_t number = 1; number <= std::min(n_shards, static_cast<int64_t>(n_lines)); ++number)
    if (!known[static_cast<size_t>(number % n_shards)]) missing.push_back(number % n_shards);
  return missing;
}

std::string unfinished_shards(std::span<const ShardDirectory> directories, std::span<const JournalState> journals,
                              std::span<const InputLine> lines) {
  const auto n_shards = static_cast<size_t>(directories.front().shard.n_shards);
  std::vector<std::string> names;
  for (size_t d = 0; d < directories.size(); ++d) {
    size_t n_lacking = 0;
    const auto shard = static_cast<size_t>(directories[d].shard.shard);
    for (size_t number = shard == 0 ? n_shards : shard; number <= lines.size(); number += n_shards)
      n_lacking += journals[d].done.contains(lines[number - 1].id) ? 0 : 1;
    if (n_lacking > 0)
      names.push_back(concat(described(directories[d]), " lacks ", n_lacking, n_lacking > 1 ? " lines" : " line"));
  }
  return list_of(names);
}

}  // namespace lockstep
