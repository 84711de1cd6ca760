// What only a replica's root does: takes lines in, tells the replica what happened in a step, and writes finished lines down.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/answers.h"
#include "engine/language.h"
#include "engine/waiting.h"
#include "engine/work.h"
#include "journal/input_file.h"
#include "journal/journal.h"
#include "journal/json_line.h"
#include "records/step_batch.h"
#include "records/step_events.h"

namespace lockstep {

struct ReplicaRootOptions {
  std::string input;  // path, read line by line at the offsets that the work server names
  std::string model_name;
  std::string require_model;         // lines that name another model are faulty; empty: the name is free
  int64_t max_open = 128;            // sequences admitted and not finished
  int64_t n_slots = 0;               // of the scheduler, if others may have free ones: lines wait there until this one has
  int lag = 0;                       // of the scheduler
  std::function<double()> now_s;     // seconds since the run began
  std::function<bool()> stop_asked;  // a stop signal arrived
  std::function<void(const FinishedLine&)> on_finished;  // for the timings
};

class ReplicaRoot {
 public:
  ReplicaRoot(const Language& language, WorkClient work, JournalWriter& journal, ReplicaRootOptions options);

  // The events of `batch`: its sampled tokens, and what is admitted now.
  StepEvents events_of(const StepBatch& batch, const StepOutcome& outcome);

  void commit();  // all finished lines are in the journal, durably, and reported to rank 0
  const WorkTotals& totals() const { return totals_; }

 private:
  void admit(StepEvents& events);
  void begin_line(const InputLine& line, StepEvents& events);
  void write_finished();

  const Language& language_;
  WorkClient work_;
  JournalWriter& journal_;
  ReplicaRootOptions options_;
  InputFile input_;
  JsonLine json_;  // its memory serves every line
  Answers answers_;
  Waiting waiting_;
  WorkTotals totals_;
  RequestId next_id_ = 0;
};

}  // namespace lockstep
