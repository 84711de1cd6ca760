#include "engine/engine.h"

#include <limits>

#include "base/bytes.h"
#include "base/error.h"
#include "base/nvtx.h"
#include "sched/batch_builder.h"

namespace lockstep {

namespace {

// New tokens that follow a token of the same sequence's own making are decode tokens; the rest is prompt.
StepTiming timing_of(const StepBatch& batch) {
  StepTiming t;
  t.step = batch.step;
  t.n_seqs = static_cast<int32_t>(batch.n_seqs());
  for (int64_t i = 0; i < batch.n_seqs(); ++i) {
    const int32_t n_new = batch.q_offsets[i + 1] - batch.q_offsets[i];
    (n_new == 1 ? t.n_decode_tokens : t.n_prefill_tokens) += n_new;
  }
  return t;
}

// Debug builds: the scheduler is replicated, so every rank must have decided on the same batch.
void check_lockstep([[maybe_unused]] const StepBatch& batch, [[maybe_unused]] Communicator& replica) {
#ifndef NDEBUG
  ByteWriter w;
  w.put(hash_of(batch));
  const auto all = replica.exchange(w.bytes());
  for (size_t r = 0; r < all.size(); ++r)
    check(all[r] == all[0], "step ", batch.step, ": the batch of rank ", r, " of the replica differs from rank 0's");
#endif
}

}  // namespace

Engine::Engine(Stage& stage, const SchedulerOptions& scheduling, Communicator& replica, ReplicaRoot* root,
               EngineOptions options)
    : stage_(stage), scheduler_(scheduling), replica_(replica), root_(root), options_(std::move(options)) {
  check(0 <= options_.ahead && options_.ahead <= options_.lag, options_.ahead, " steps ahead with lag ", options_.lag);
}

bool Engine::step() {
  const double start_s = options_.now_s();
  const double comm_before_s = options_.comm_s();
  wait_s_ = 0;
  const NvtxRange whole("step");
  NvtxRange part("schedule");

  if (step_ > options_.lag) {
    const StepEvents events = events_of_step(step_ - 1 - options_.lag);
    scheduler_.commit(events);
    drained_ = events.drained;
    stopped_ = events.stop;
  }
  if (stopped_ || (drained_ && scheduler_.idle())) {
    drain();
    return false;
  }
  const StepBatch& batch = launched_.emplace_back(scheduler_.schedule());
  check_lockstep(batch, replica_);
  StepTiming timing = timing_of(batch);
  const bool has_work = batch.n_tokens() > 0;
  part.next("forward");
  stage_.forward(batch);
  part.next("collect");
  if (static_cast<int>(launched_.size()) > options_.ahead) finish_step();
  if (!has_work) relax(1000);  // nothing to do until work arrives: let others have the processor
  ++step_;

  timing.start_s = start_s;
  timing.duration_s = options_.now_s() - start_s;
  timing.comm_s = options_.comm_s() - comm_before_s;
  timing.wait_s = wait_s_;
  timing.n_pages = scheduler_.n_pages_used();
  timings_.push_back(timing);
  report_timings();
  return true;
}

void Engine::report_timings() {
  for (; !timings_.empty() && !device_s_.empty(); timings_.pop_front(), device_s_.pop_front()) {
    timings_.front().device_s = device_s_.front();
    if (timings_.front().n_seqs > 0) options_.on_step(timings_.front());
  }
}

// Of the steps launched and not collected, the oldest: its tokens, and what follows from them.
void Engine::finish_step() {
  const StepBatch batch = std::move(launched_.front());
  launched_.pop_front();
  // The events sent last may need this rank for their way, and the other stages need them before this step is over.
  const bool is_needed = (root_ != nullptr && replica_.size() > 1) || options_.meanwhile;
  for (int attempt = 0; is_needed && !stage_.is_done(batch.step); ++attempt) {
    replica_.progress();
    if (options_.meanwhile) options_.meanwhile();
    relax(attempt);
  }
  const StepOutcome outcome = options_.last_stage ? stage_.collect(batch.step) : StepOutcome{};
  device_s_.push_back(outcome.device_s);
  if (root_ != nullptr) publish(root_->events_of(batch, outcome));
}

void Engine::publish(StepEvents events) {
  ByteWriter w;
  put(w, events);
  std::vector<std::byte> bytes = w.take();
  replica_.broadcast(bytes, options_.root);
  published_.push_back(std::move(events));
}

StepEvents Engine::events_of_step(int64_t step) {
  check(step == next_events_, "events of step ", step, " wanted, ", next_events_, " are next");
  ++next_events_;
  const double comm_before_s = options_.comm_s();  // by the same clock readings, so that it is a part of the step's comm_s
  StepEvents events;
  if (root_ != nullptr) {
    events = std::move(published_.front());
    published_.pop_front();
    // The others decide the next step from the same events. They must have them before this rank waits for a GPU that waits
    // for theirs.
    replica_.flush(published_.size());
  } else {
    std::vector<std::byte> bytes;
    replica_.broadcast(bytes, options_.root);
    ByteReader r(bytes);
    events = get_step_events(r);
  }
  wait_s_ += options_.comm_s() - comm_before_s;
  check(events.step == step, "events of step ", events.step, " arrived, ", step, " expected");
  return events;
}

// The events of the last steps that were collected are on their way: take them, so that nothing is left in the communicator.
void Engine::drain() {
  device_s_.resize(timings_.size(), std::numeric_limits<double>::quiet_NaN());  // launched and not collected
  report_timings();
  while (next_events_ < step_ - options_.ahead) events_of_step(next_events_);
}

}  // namespace lockstep
