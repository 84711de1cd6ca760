// One replica on one rank: the step. Every rank of the replica runs the same scheduler over the same events, and differs only
// in the weights it holds.
//   while (engine.step()) {}
#pragma once

#include <cstdint>
#include <deque>
#include <functional>

#include "comm/communicator.h"
#include "engine/replica_root.h"
#include "model/stage.h"
#include "records/step_events.h"
#include "sched/scheduler.h"
#include "telemetry/timing_records.h"

namespace lockstep {

struct EngineOptions {
  int lag = 0;    // step k is decided from the events of steps <= k - 1 - lag
  int ahead = 0;  // 0 .. lag: step k - ahead is collected once step k is launched, so that a device always has its next step
  int root = 0;   // rank of the replica's root in its communicator
  bool last_stage = true;
  std::function<double()> now_s;   // seconds since the run began
  std::function<double()> comm_s;  // seconds spent in communication so far
  std::function<void(const StepTiming&)> on_step;
  std::function<void()> meanwhile;  // again and again while a device computes; may be empty
};

class Engine {
 public:
  // root: null on every rank but the replica's root.
  Engine(Stage& stage, const SchedulerOptions& scheduling, Communicator& replica, ReplicaRoot* root, EngineOptions options);

  // Collective over the replica. False: finished or stopped, and every rank knows it at the same step.
  bool step();
  bool stopped() const { return stopped_; }

 private:
  void finish_step();
  void report_timings();
  StepEvents events_of_step(int64_t step);
  void publish(StepEvents events);
  void drain();

  Stage& stage_;
  Scheduler scheduler_;
  Communicator& replica_;
  ReplicaRoot* root_;
  EngineOptions options_;
  std::deque<StepBatch> launched_;    // not collected yet
  std::deque<StepTiming> timings_;    // of steps that are over on the host; n_seqs 0: nothing was to do
  std::deque<double> device_s_;       // of steps that were collected; both by step, until the step has both
  std::deque<StepEvents> published_;  // the root's own copies, not yet committed
  int64_t step_ = 0;
  int64_t next_events_ = 0;  // the first step whose events this rank hasn't received
  bool drained_ = false, stopped_ = false;
  double wait_s_ = 0;
};

}  // namespace lockstep
