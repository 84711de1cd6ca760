// A run without its arithmetic: what `lockstep run` does beside the model, by the program's own code, with replicas that give
// every sequence one fixed token a step. Shared by the test of its memory and by bench/bookkeeping_bench.cpp, which times it.
//   write_short_lines(input, 0, n);   Bookkeeping run(options);   run.open();   run.work(n);   run.finish();
//   run.write_timings();
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/durable_file.h"
#include "base/error.h"
#include "comm/communicator.h"
#include "commands/device.h"
#include "commands/final_timings.h"
#include "commands/finish.h"
#include "commands/job.h"
#include "engine/replica_root.h"
#include "engine/work.h"
#include "telemetry/raw_timings.h"

namespace lockstep {

constexpr TokenId kFakeToken = 'x' + 4;  // of the tiny model (support/tiny_model.h): the letter x

// ---- the input: short lines, one in 100 faulty, one in three of a chat, prompts of which many begin alike ----
inline std::string short_line(int64_t i) {
  const std::string id = concat("ask-", i);
  const std::string question = concat("What is ", i % 89, " plus ", i % 97, "?");
  const std::string more = concat(",\"max_tokens\":", 1 + i % 4, ",\"temperature\":", i % 100 == 57 ? "7" : "0", "}");
  if (i % 3 == 1)
    return concat("{\"custom_id\":\"", id, "\",\"messages\":[{\"role\":\"user\",\"content\":\"", question, "\"}]", more);
  return concat("{\"custom_id\":\"", id, "\",\"prompt\":\"", question, "\"", more);
}

// Lines [begin, end), appended to the file.
inline void write_short_lines(const std::string& path, int64_t begin, int64_t end) {
  std::ofstream file(path, std::ios::binary | std::ios::app);
  for (int64_t i = begin; i < end; ++i) file << short_line(i) << '\n';
  check(file.flush().good(), path, ": not written");
}

// ---- a replica: its root and nothing else ----
class FakeReplica {
 public:
  FakeReplica(const Language& language, WorkClient work, const std::string& out_dir, int64_t epoch, int replica,
              ReplicaRootOptions options)
      : journal_(out_dir, epoch, replica), root_(language, std::move(work), journal_, std::move(options)) {}

  // Every open sequence samples a token; new lines come in. False: nothing is left.
  bool step() {
    StepBatch batch;
    batch.step = n_steps_++;
    StepOutcome outcome;
    for (const RequestId request : open_) outcome.sampled.push_back({.request = request, .token = kFakeToken});
    const StepEvents events = root_.events_of(batch, outcome);
    open_.clear();
    for (const StepEvents::Token& token : events.sampled)
      if (!token.finished) open_.push_back(token.request);
    for (const Request& request : events.admitted) open_.push_back(request.id);
    return !open_.empty() || !events.drained;
  }
  void commit() { root_.commit(); }
  int64_t n_done() const { return root_.totals().n_done; }

 private:
  JournalWriter journal_;
  ReplicaRoot root_;
  std::vector<RequestId> open_;
  int64_t n_steps_ = 0;
};

// ---- rank 0 of a run ----
class Bookkeeping {
 public:
  Bookkeeping(RunOptions options, int n_replicas)
      : options_(with_device(std::move(options))),
        n_replicas_(n_replicas),
        model_(open_model(options_)),
        language_(*model_.checkpoint, model_.defaults, model_.max_model_len),
        world_(make_solo_comm()) {
    identify(model_, *world_);
  }

  // Until the first line could run.
  void open() {
    job_ = open_job(options_, model_, "fake");
    begin_job(job_, R"({"host":"here"})");
    timings_ = std::make_unique<RawTimings>(options_.output, job_.epoch, 0);
    server_ = std::make_unique<WorkServer>(job_.input->lines(), job_.plan.to_run, std::vector<int>(size_t(n_replicas_), 0));
  }

  // All that is to run, or at least `most` lines of it.
  void work(int64_t most) {
    std::vector<std::unique_ptr<FakeReplica>> replicas;
    for (int r = 0; r < n_replicas_; ++r)
      replicas.push_back(std::make_unique<FakeReplica>(
          language_, WorkClient(*world_, server_.get(), r), options_.output, job_.epoch, r,
          ReplicaRootOptions{
              .input = options_.input,
              .model_name = model_.name,
              .max_open = 2 * options_.max_sequences,
              .now_s = [] { return 1.0; },
              .stop_asked = [] { return false; },
              .on_finished = [this, r](const FinishedLine& line) { timings_->add(timing_of(line, job_.epoch, r)); }}));
    n_done_ = 0;
    for (bool more = true; more && n_done_ < most;) {
      more = false;
      n_done_ = 0;
      for (const auto& replica : replicas) {
        more = replica->step() || more;
        n_done_ += replica->n_done();
      }
      job_.lock->heartbeat();
    }
    for (const auto& replica : replicas) replica->commit();
  }

  MergeResult finish() { return finish_job(job_); }
  void write_timings() {
    timings_->flush();
    write_final_timings(job_, true, {});
  }

  const Job& job() const { return job_; }
  const Language& language() const { return language_; }
  const ModelSource& model() const { return model_; }
  int64_t n_done() const { return n_done_; }  // by the last work()

 private:
  RunOptions options_;
  int n_replicas_;
  ModelSource model_;
  Language language_;
  std::unique_ptr<Communicator> world_;
  Job job_;
  std::unique_ptr<RawTimings> timings_;
  std::unique_ptr<WorkServer> server_;
  int64_t n_done_ = 0;
};

// ---- what it took ----

// Of this process so far, bytes; 0 where the system doesn't say.
inline uint64_t peak_memory() {
  std::ifstream status("/proc/self/status");
  unsigned long long kib = 0;
  for (std::string line; std::getline(status, line);)
    if (std::sscanf(line.c_str(), "VmHWM: %llu kB", &kib) == 1) break;
  return uint64_t{kib} << 10;
}

// Forgets the peak, so that the next one is that of what follows. False: the system doesn't let us.
inline bool reset_peak_memory() {
  int error = 0;
  const FileHandle file = try_open("/proc/self/clear_refs", O_WRONLY, error);
  return error == 0 && try_write_all(file.get(), "5") == 0;
}

inline double wall_s() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}
inline double cpu_s() {
  timespec t{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace lockstep
