// Decides what each step computes: continuous batching with chunked prefill over KV pages, under one token budget.
// (state, events) -> decision: no tensor, clock, rank, random number or memory query, so that all ranks of a replica keep
// an equal copy. Not for reading input, finding ends of text or moving bytes: the engine does, and tells it by StepEvents.
//
// Steps are numbered 0, 1, 2, ...; an empty step counts too. The engine's loop, with a constant lag:
//   for (int64_t k = 0;; ++k) {
//     if (k > lag) scheduler.commit(events_of(k - 1 - lag));
//     run(scheduler.schedule());                              // step k, decided from the events of steps <= k - 1 - lag
//   }
//
// Order within a step is the order of request ids: running sequences that decode, the one whose prefill has begun, then
// admissions from the waiting queue. Every running id is lower than every waiting one, so the oldest always moves on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "records/step_batch.h"
#include "records/step_events.h"
#include "sched/batch_builder.h"
#include "sched/page_pool.h"
#include "sched/prefix_cache.h"
#include "sched/sequence.h"

namespace lockstep {

struct SchedulerOptions {
  int64_t n_pages = 0;           // at least pages_for(max_model_len)
  int64_t max_batch_tokens = 0;  // new tokens a step
  int64_t max_sequences = 0;     // that hold pages at a time; sample slots are 0 .. max_sequences - 1
  int64_t max_model_len = 0;     // prompt + max_tokens of a request
  int lag = 0;
  // true: a token sampled but not committed is fed as sampled_in(slot), so that a sequence decodes in consecutive steps.
  // false (first stage of a pipeline isn't the last): it waits for its token, and lag + 1 micro-batches of about equal
  // size take turns.
  bool resolve_references = true;
  // Sequences begin on the pages that hold their first tokens already, from whichever sequence. A prompt that is scored
  // computes all of its tokens, for their logits.
  bool prefix_cache = false;
  // Where an older sequence finds no free page, the youngest is preempted. It keeps its KV in pages of host memory if there are
  // enough of them; else its tokens, prompt and generated ones, are computed again, as a prefill.
  int64_t n_host_pages = 0;
  // A step's time grows by whole units of so many tokens. Where a step's last sequence is in prefill and more of it or behind
  // it waits, its chunk is cut so that the step has a multiple of them; the rest comes in the next step.
  int64_t token_unit = 1;
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerOptions& options);  // throws Error (usage) where a value is impossible

  // Takes the events of the oldest step not committed yet: admissions join the waiting queue, sampled tokens their
  // sequences; finished sequences leave, and their pages return. Throws Error where the events don't fit what was
  // scheduled. `drained` and `stop` are the engine's affair.
  void commit(const StepEvents& events);

  // The next step; O(running sequences + what the batch holds). Needs exactly `lag` steps in flight (fewer at the start).
  StepBatch schedule();

  bool idle() const;  // nothing waiting, running or in flight (empty steps aside)
  int64_t next_step() const { return next_step_; }
  int64_t n_waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t n_running() const { return static_cast<int64_t>(sequences_.size() - waiting_.size()); }
  int64_t n_pages_used() const { return pool_.n_used(); }
  int64_t n_host_pages_used() const { return host_pool_.n_used(); }
  int64_t n_preempted() const { return n_preempted_; }  // preemptions so far
  int64_t n_cached() const { return n_cached_; }        // tokens so far that were found instead of computed
  const SchedulerOptions& options() const { return options_; }

  // Throws Error unless pages, slots, lengths and queues agree with each other. O(pages + sequences): for tests.
  void check_integrity() const;

 private:
  struct InFlight {                  // a step scheduled and not committed
    std::vector<RequestId> sampled;  // in order of rows
    std::vector<RequestId> scored;   // sequences without a sample that are complete with this step
    std::vector<int32_t> slots;      // free once this step is committed: it may still write them
    bool empty = true;
  };

  int64_t first_in_flight() const { return next_step_ - static_cast<int64_t>(in_flight_.size()); }
  void admit(const Request& request);
  void leave(const std::vector<Sequence*>& finished);

  int64_t micro_batch(int64_t n_sequences) const;
  void schedule_decodes(BatchBuilder& batch);
  bool schedule_prefill(BatchBuilder& batch);
  bool add_chunk(BatchBuilder& batch, Sequence& sequence, int64_t n_reserved);
  void schedule_admissions(BatchBuilder& batch);
  bool has_room(int64_t n_tokens, int64_t n_seqs) const;
  bool another_follows(const BatchBuilder& batch, const Sequence& sequence, int64_t n_new, int64_t n_reserved) const;
  int64_t n_in_use(const PrefixCache::Found& prefix) const;
  PrefixCache::Found find_prefix(const Sequence& sequence) const;
  void add(BatchBuilder& batch, Sequence& sequence, int64_t n_new);
  void keep_full_pages(Sequence& sequence);
  void retire_complete();
  void preempt_youngest(BatchBuilder& batch);
  void take_pages(BatchBuilder& batch, Sequence& sequence, const PrefixCache::Found& prefix);
  void free_slot(Sequence& sequence);

  SchedulerOptions options_;
  PagePool pool_, host_pool_;
  PrefixCache cache_;
  std::vector<int32_t> free_slots_;                    // a stack
  std::unordered_map<RequestId, Sequence> sequences_;  // all not finished; never iterated for a decision
  std::deque<Sequence*> waiting_;                      // by id; preempted ones come first
  std::vector<Sequence*> running_;                     // by id; those with something left to compute. Only the last may be
                                                       // in prefill
  std::deque<InFlight> in_flight_;                     // steps first_in_flight() .. next_step_ - 1
  int64_t next_step_ = 0;
  RequestId last_admitted_ = -1;
  int64_t n_preempted_ = 0, n_cached_ = 0;
};

}  // namespace lockstep
