// One pipeline stage of one replica on one rank: embed or receive, its layers, then norm, head and sampling, or send.
//   Stage stage(...); stage.forward(batch); auto tokens = stage.collect(batch.step);   // the last stage only collects
// Not for: deciding what runs (sched/), who answers (engine/).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "comm/communicator.h"
#include "mesh/mesh.h"
#include "model/activations.h"
#include "model/host_pages.h"
#include "model/node_reader.h"
#include "model/shard.h"
#include "model/weights.h"
#include "ops/ops.h"
#include "records/completion.h"
#include "records/step_batch.h"

namespace lockstep {

struct StageOptions {
  Mesh mesh;
  Place place;
  DType dtype = DType::f32;
  int64_t vocab = 0;  // ids that may be sampled
  int64_t max_model_len = 0;
  int64_t max_batch_tokens = 0;
  int64_t max_sequences = 0;
};

// Bytes of one KV page over the layers of a rank; known before any weight is read.
size_t kv_page_bytes(const Shard& shard, DType dtype, const Ops& ops);

class Stage {
 public:
  // Reads this rank's weights. tp: the ranks of this stage; replica: all ranks of the replica, stage by stage. reader: with
  // which ranks of its node it reads.
  Stage(const Checkpoint& checkpoint, const StageOptions& options, Ops& ops, Communicator& tp, Communicator& replica,
        NodeReader& reader);

  size_t page_bytes() const { return kv_page_bytes(shard_, options_.dtype, ops_); }
  // Once, before the first step. n_host_pages: of host memory, taken when a step first needs them.
  void allocate_kv(int64_t n_pages, int64_t n_host_pages = 0);

  // Runs one step. Collective over the replica's ranks in this sense: every stage is given the same batches in the same order.
  void forward(const StepBatch& batch);
  StepOutcome collect(int64_t step) { return ops_.collect(step); }
  bool is_done(int64_t step) const { return ops_.is_done(step); }  // whether collect wouldn't wait

  const Shard& shard() const { return shard_; }
  size_t weight_bytes() const { return weights_.bytes; }
  size_t activation_bytes() const { return activations_.bytes(); }
  size_t host_kv_bytes() const { return host_pages_ ? host_pages_->bytes() : 0; }  // taken so far

 private:
  void copy_pages(const StepBatch& step);
  void layers(const Activations::Step& a, const DeviceBatch& batch);
  void feed_samples(const Activations::Step& a, const DeviceBatch& batch);
  void sample(const Activations::Step& a, const DeviceBatch& batch);
  void take_rows(const Activations::Step& a, const int32_t* rows);
  void logits_of(const Activations::Step& a);
  bool ends_with_samples(const StepBatch& step) const;
  KvPages kv_of(size_t local_layer) const;
  int peer(int pp_index) const;  // of the same tensor index, as a rank of the replica

  const ModelConfig& config_;
  StageOptions options_;
  Shard shard_;
  Ops& ops_;
  Communicator& tp_;
  Communicator& replica_;
  Weights weights_;
  Activations activations_;
  Buffer kv_;  // [n_layers_local, n_pages, page_bytes of one layer]
  int64_t n_pages_ = 0;
  std::optional<HostPages> host_pages_;
};

}  // namespace lockstep
