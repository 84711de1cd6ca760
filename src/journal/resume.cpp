#include "journal/resume.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"

namespace lockstep {

namespace {

constexpr size_t kMostNamed = 5;

// The custom_id of a record, for a message: the journal holds ids only as digests.
std::string custom_id_of(const JournalState& state, const DoneRecord& done) {
  const auto record = nlohmann::json::parse(read_record(state, done), nullptr, false);
  if (!record.is_object() || !record.contains("custom_id") || !record["custom_id"].is_string()) return "(unnamed)";
  return concat("'", record["custom_id"].get_ref<const std::string&>(), "'");
}

// "3 removed: 'a', 'b', 'c'", in the order the records have in the journal.
std::string list_removed(const JournalState& state, std::span<const InputLine> lines) {
  std::vector<Digest> present;
  present.reserve(lines.size());
  for (const InputLine& line : lines) present.push_back(line.id);
  std::ranges::sort(present);
  std::vector<DoneRecord> removed;  // the first few
  int64_t n_removed = 0;
  const auto earlier = [](const DoneRecord& a, const DoneRecord& b) {
    return std::pair(a.shard, a.offset) < std::pair(b.shard, b.offset);
  };
  for (const auto& [id, done] : state.done) {
    if (std::ranges::binary_search(present, id)) continue;
    ++n_removed;
    removed.insert(std::ranges::upper_bound(removed, done, earlier), done);
    if (removed.size() > kMostNamed) removed.pop_back();
  }
  std::string text = concat(n_removed, " removed: ");
  for (size_t i = 0; i < removed.size(); ++i) text += (i > 0 ? ", " : "") + custom_id_of(state, removed[i]);
  if (n_removed > static_cast<int64_t>(removed.size())) text += ", ...";
  return text;
}

}  // namespace

ResumePlan plan_resume(const JournalState& state, std::span<const InputLine> lines, bool retry_errors) {
  check(lines.size() <= UINT32_MAX, lines.size(), " lines, more than 2^32");
  ResumePlan plan;
  size_t n_known = 0, n_edited = 0;
  std::string edited;
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto at = state.done.find(lines[i].id);
    if (at == state.done.end()) {
      plan.to_run.push_back(static_cast<uint32_t>(i));
      continue;
    }
    const DoneRecord& done = at->second;
    ++n_known;
    if (done.content != lines[i].content) {
      if (++n_edited <= kMostNamed)
        edited += concat(n_edited > 1 ? ", " : "", custom_id_of(state, done), " (line ", lines[i].line, ")");
    } else if (!done.failed) {
      ++plan.n_done;
    } else if (retry_errors) {
      plan.to_run.push_back(static_cast<uint32_t>(i));
    } else {
      ++plan.n_failed;
    }
  }
  std::string refused;
  if (n_edited > 0) refused = concat(n_edited, " edited: ", edited, n_edited > kMostNamed ? ", ..." : "");
  if (n_known < state.done.size()) refused += (refused.empty() ? "" : "; ") + list_removed(state, lines);
  if (!refused.empty())
    fail(ExitCode::usage, state.out_dir, ": the input is not the one this run began with, of the lines already done ", refused,
         "; restore them, give another --output, or --overwrite to start anew");
  plan.finished = plan.to_run.empty();
  return plan;
}

}  // namespace lockstep
