// Scheduled sequences -> StepBatch. Decides nothing; of a sequence it changes only what it has handed out (scores,
// adjustments).
//   BatchBuilder batch(step);  batch.add(sequence, 1);  return batch.take();
#pragma once

#include <cstdint>
#include <utility>

#include "records/step_batch.h"
#include "sched/sequence.h"

namespace lockstep {

class BatchBuilder {
 public:
  explicit BatchBuilder(int64_t step);

  // The next n_new tokens of `sequence`, whose pages hold them already; a sample row too if no token is left after them.
  void add(Sequence& sequence, int64_t n_new);

  void add_cached(CachedPrefix cached) { batch_.cached.push_back(cached); }
  void add_saved(PageCopy copy) { batch_.saved.push_back(copy); }
  void add_restored(PageCopy copy) { batch_.restored.push_back(copy); }

  int64_t n_tokens() const { return batch_.n_tokens(); }
  int64_t n_seqs() const { return batch_.n_seqs(); }
  StepBatch take() { return std::move(batch_); }

 private:
  void add_scores(Sequence& sequence, int64_t begin, int64_t end);
  void add_adjustments(const Sequence& sequence);

  StepBatch batch_;
};

// Equal batches, equal hashes: what ranks compare to know that their schedulers agree.
uint64_t hash_of(const StepBatch& batch);

}  // namespace lockstep
