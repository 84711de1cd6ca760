// A job with an engine that makes records out of line numbers: the order of work, commits and writers is random, the records
// are not. Shared by the unit tests, the program that gets killed and the one whose system calls fail.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "journal/directory_lock.h"
#include "journal/epoch.h"
#include "journal/journal.h"
#include "journal/manifest.h"
#include "journal/merge.h"
#include "journal/output_record.h"
#include "journal/resume.h"

namespace lockstep {

// A directory that goes with its object; in memory where there is such a place, since thousands of syncs are asked of it.
class Scratch {
 public:
  Scratch() {
    const bool in_memory = ::access("/dev/shm", W_OK) == 0 && std::getenv("LOCKSTEP_TEST_ON_DISK") == nullptr;
    std::string name =
        (in_memory ? std::string("/dev/shm") : std::filesystem::temp_directory_path().string()) + "/lockstep-XXXXXX";
    check(::mkdtemp(name.data()) != nullptr, "no scratch directory ", name);
    path_ = name;
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// ---- line i of the fake input, counted from 0 ----
inline std::string custom_id_at(int i) { return "ask-" + std::to_string(i); }
inline bool fails_at(int i) { return i % 7 == 3; }

inline InputLine line_at(int i) {
  InputLine line;
  line.line = i + 1;
  line.id = digest128(custom_id_at(i));
  line.content = hash64("content of " + custom_id_at(i));
  return line;
}

inline std::vector<InputLine> lines_up_to(int n) {
  std::vector<InputLine> lines;
  for (int i = 0; i < n; ++i) lines.push_back(line_at(i));
  return lines;
}

inline JournalEntry entry_at(int i) {
  const std::string head = R"({"id":"r-)" + std::to_string(i) + R"(","custom_id":")" + custom_id_at(i) + R"(",)";
  const auto n = static_cast<size_t>(i % 5 == 4 ? i * 97 % 4000 : i * 31 % 200);
  const std::string text(n, static_cast<char>('a' + i % 26));
  const std::string tail = fails_at(i) ? R"("response":null,"error":{"code":"prompt_too_long","message":")" + text + R"("}})"
                                       : R"("response":{"status_code":200,"body":")" + text + R"("},"error":null})";
  return {line_at(i).id, line_at(i).content, fails_at(i), head + tail};
}

inline const std::vector<ManifestField> kFakeOptions = {{"model", "fake"}, {"seed", "1"}};

struct FakeJob {
  int n_lines = 20;
  int n_writers = 2;
  uint64_t seed = 0;
  std::function<void(std::span<const int>)> acknowledge = [](auto) {};  // lines (from 0) whose commit() returned
};

// As a run does it: lock, check, plan, open an epoch, write and commit, merge.
inline MergeResult run_fake_job(const std::string& out, const FakeJob& job) {
  prepare_output(out);
  DirectoryLock lock(out, {.heartbeat_s = 0});
  const auto lines = lines_up_to(job.n_lines);
  begin_run(out, kFakeOptions, check_start(out, kFakeOptions, {}));
  JournalState state = recover_journal(out);
  ResumePlan plan = plan_resume(state, lines, false);
  if (!plan.finished) {
    const int64_t epoch = open_epoch(out, state, R"({"hosts":["here"]})");
    std::mt19937_64 random(job.seed);
    std::shuffle(plan.to_run.begin(), plan.to_run.end(), random);
    std::vector<std::unique_ptr<JournalWriter>> writers;
    for (int w = 0; w < job.n_writers; ++w) writers.push_back(std::make_unique<JournalWriter>(out, epoch, w));
    std::vector<std::vector<int>> pending(writers.size());
    const auto commit = [&](size_t w) {
      writers[w]->commit();
      job.acknowledge(pending[w]);
      pending[w].clear();
    };
    for (const uint32_t i : plan.to_run) {
      const size_t w = random() % writers.size();
      writers[w]->append(entry_at(static_cast<int>(i)));
      pending[w].push_back(static_cast<int>(i));
      if (random() % 4 == 0) commit(w);
      lock.heartbeat();
    }
    for (size_t w = 0; w < writers.size(); ++w) commit(w);
    state = recover_journal(out);
  }
  return merge_outputs(out, lines, state, false);
}

// What completions.jsonl must hold.
inline std::string expected_completions(int n_lines) {
  std::string text;
  for (int i = 0; i < n_lines; ++i) {
    const JournalEntry entry = entry_at(i);
    text += (entry.failed ? error_record_at_line(entry.record, i + 1) : entry.record) + "\n";
  }
  return text;
}

// Which of the acknowledged lines the journal no longer has as they were; empty: none.
inline std::string lost_of(const std::string& out, std::span<const int> acknowledged) {
  const JournalState state = recover_journal(out);
  std::string lost;
  for (const int i : acknowledged) {
    const auto at = state.done.find(line_at(i).id);
    if (at == state.done.end())
      lost += concat(" line ", i + 1, " is gone;");
    else if (read_record(state, at->second) != entry_at(i).record)
      lost += concat(" line ", i + 1, " has changed;");
  }
  return lost;
}

}  // namespace lockstep
