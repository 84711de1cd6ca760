#include "model/stage.h"

#include <algorithm>
#include <span>

#include "model/layer.h"

namespace lockstep {

namespace {

// While the host reads, the device tries its algorithms for the products to come.
Weights load_beside_trials(const Checkpoint& checkpoint, const Shard& shard, const StageOptions& o, Ops& ops,
                           NodeReader& reader) {
  ops.begin_loading(linear_shapes(checkpoint.config(), shard, o.dtype, o.max_batch_tokens, o.max_sequences));
  Weights weights = load_weights(checkpoint, shard, o.dtype, o.max_model_len, ops, reader);
  ops.end_loading();
  return weights;
}

// Of the last matrix that a layer left on its way, part by part.
void end_gathers(std::span<const Range> parts, Communicator& tp) {
  for (size_t i = 0; parts.size() > 1 && i < parts.size(); ++i) tp.end_gather();
}

}  // namespace

Stage::Stage(const Checkpoint& checkpoint, const StageOptions& options, Ops& ops, Communicator& tp, Communicator& replica,
             NodeReader& reader)
    : config_(checkpoint.config()),
      options_(options),
      shard_(make_shard(config_, options.mesh, options.place, options.vocab)),
      ops_(ops),
      tp_(tp),
      replica_(replica),
      weights_(load_beside_trials(checkpoint, shard_, options, ops, reader)),
      activations_(config_, shard_, options.dtype, options.max_batch_tokens, options.max_sequences, ops) {}

size_t kv_page_bytes(const Shard& shard, DType dtype, const Ops& ops) {
  return shard.layers.size() * ops.kv_page_bytes(dtype, shard.heads.n_kv_heads, shard.heads.head_dim);
}

void Stage::allocate_kv(int64_t n_pages, int64_t n_host_pages) {
  n_pages_ = n_pages;
  kv_ = ops_.allocate(n_pages * page_bytes());
  host_pages_.emplace(ops_, n_host_pages, page_bytes());
}

KvPages Stage::kv_of(size_t local_layer) const {
  const size_t layer_bytes = kv_.bytes() / shard_.layers.size();
  return {.data = kv_.data() + local_layer * layer_bytes,
          .dtype = options_.dtype,
          .n_pages = n_pages_,
          .n_kv_heads = shard_.heads.n_kv_heads,
          .head_dim = config_.head_dim};
}

int Stage::peer(int pp_index) const { return pp_index * options_.mesh.tp + shard_.place.tp; }

void Stage::forward(const StepBatch& step) {
  if (step.n_tokens() == 0) return copy_pages(step);
  const DeviceBatch batch = ops_.upload_batch(step);
  copy_pages(step);
  const Activations::Step a = activations_.of(batch.n_rows, shard_.last_stage ? step.samples.size() : 0);
  if (!shard_.first_stage) replica_.recv(a.residual.top(step.n_tokens()), peer(shard_.place.pp - 1));
  ops_.replayable(batch, [&] {
    if (shard_.first_stage) ops_.embed(a.residual, weights_.embedding_view, batch);
    layers(a, batch);
  });

  if (shard_.last_stage) {
    sample(a, batch);
  } else {
    ops_.add(a.residual, a.delta);
    replica_.send(a.residual.top(step.n_tokens()), peer(shard_.place.pp + 1));
  }
}

void Stage::copy_pages(const StepBatch& step) {
  const auto n_layers = static_cast<int64_t>(shard_.layers.size());
  const KvPool pool{kv_.data(), n_layers, n_pages_, page_bytes() / static_cast<size_t>(n_layers)};
  std::vector<HostPage> pages;
  const auto copy = [&](PageWay way, const std::vector<PageCopy>& copies) {
    if (copies.empty()) return;
    pages.clear();
    for (const PageCopy& c : copies) pages.push_back({c.page, host_pages_->at(c.host_page)});
    ops_.copy_pages(way, pool, pages);
  };
  copy(PageWay::to_host, step.saved);
  copy(PageWay::from_host, step.restored);
}

// Of the model's last layer nobody reads more than the tokens' keys and values, and the rows that get logits. A step in which
// each sequence has one token gets them for nearly all of its rows, and its calls depend on their number alone (`replayable`).
bool Stage::ends_with_samples(const StepBatch& step) const {
  return shard_.last_stage && step.n_tokens() > step.n_seqs() && step.scores.empty();
}

void Stage::layers(const Activations::Step& a, const DeviceBatch& batch) {
  const std::vector<Range> parts = parts_of_step(batch.n_rows, tp_);
  const LayerContext context{config_, shard_, batch, weights_.rope.view, ops_, tp_, parts};
  const size_t n_layers = weights_.layers.size(), n_whole = n_layers - (ends_with_samples(*batch.host) ? 1 : 0);
  for (size_t i = 0; i < n_layers; ++i) {
    const LayerWeights& weights = weights_.layers[i];
    attend(context, weights, a, kv_of(i), config_.windows[shard_.layers.begin + i], i == 0);
    if (i < n_whole) feed_forward(context, weights, a);
  }
  n_whole < n_layers ? feed_samples(a, batch) : end_gathers(parts, tp_);
}

// The last layer behind its attention, of the rows that get logits.
void Stage::feed_samples(const Activations::Step& a, const DeviceBatch& batch) {
  const auto n_samples = static_cast<int64_t>(batch.host->samples.size());
  if (n_samples == 0) return;
  const Range mine = shard_.mine(shard_.attn_cols);
  const Activations::Step few = activations_.of_last(n_samples);
  ops_.gather_rows(few.attn.columns(mine), a.attn.columns(mine), batch.sample_rows);
  ops_.gather_rows(few.residual, a.residual, batch.sample_rows);
  const std::vector<Range> parts = parts_of_step(n_samples, tp_);
  feed_forward({config_, shard_, batch, weights_.rope.view, ops_, tp_, parts}, weights_.layers.back(), few);
  end_gathers(parts, tp_);
}

// Logits only for the rows that need them, and of many scored rows a part at a time. Every tensor rank samples the same token
// from the same gathered row.
void Stage::sample(const Activations::Step& a, const DeviceBatch& batch) {
  const auto n_samples = static_cast<int64_t>(batch.host->samples.size());
  const auto n_scores = static_cast<int64_t>(batch.host->scores.size());
  for (int64_t begin = 0; begin < n_scores; begin += options_.max_sequences) {
    const Range part{begin, std::min(begin + options_.max_sequences, n_scores)};
    const Activations::Step rows = activations_.of(batch.n_rows, part.size());
    take_rows(rows, batch.score_rows + part.begin);
    logits_of(rows);
    ops_.score(rows.logits, batch, part);
  }
  if (n_samples == 0) return;
  if (!ends_with_samples(*batch.host)) take_rows(a, batch.sample_rows);
  logits_of(a);
  ops_.sample(a.logits, batch);
}

// The rows of the last layer's output that get logits, into a.last and a.last_delta.
void Stage::take_rows(const Activations::Step& a, const int32_t* rows) {
  ops_.gather_rows(a.last, a.residual, rows);
  ops_.gather_rows(a.last_delta, a.delta, rows);
}

// a.logits [n, vocab] of the rows in a.last and a.last_delta.
void Stage::logits_of(const Activations::Step& a) {
  ops_.add_rms_norm(a.last_normed, a.last, a.last_delta, weights_.final_norm.view, config_.rms_eps);
  const Range mine = shard_.mine(shard_.vocab_cols);
  if (mine.size() > 0) ops_.linear(a.logits.columns(mine), a.last_normed, weights_.lm_head);
  tp_.all_gather(a.logits, shard_.vocab_cols);
}

}  // namespace lockstep
