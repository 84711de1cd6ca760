#include "model/stage.h"

#include <algorithm>

#include "model/layer.h"

namespace lockstep {

Stage::Stage(const Checkpoint& checkpoint, const StageOptions& options, Ops& ops, Communicator& tp, Communicator& replica,
             NodeReader& reader)
    : config_(checkpoint.config()),
      options_(options),
      shard_(make_shard(config_, options.mesh, options.place, options.vocab)),
      ops_(ops),
      tp_(tp),
      replica_(replica),
      weights_(load_weights(checkpoint, shard_, options.dtype, options.max_model_len, ops, reader)),
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
  LayerContext context{config_, shard_, batch, weights_.rope.view, ops_, tp_, parts};
  const auto end_gathers = [&] {
    for (size_t i = 0; context.parts.size() > 1 && i < context.parts.size(); ++i) tp_.end_gather();
  };
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    const LayerWeights& weights = weights_.layers[i];
    attend(context, weights, a, kv_of(i), config_.windows[shard_.layers.begin + i], i == 0);
    if (i + 1 < weights_.layers.size() || !ends_with_samples(*batch.host)) {
      feed_forward(context, weights, a);
      continue;
    }
    const auto n_samples = static_cast<int64_t>(batch.host->samples.size());
    if (n_samples == 0) return;
    const Range mine = shard_.mine(shard_.attn_cols);
    const Activations::Step few = activations_.of_last(n_samples);
    ops_.gather_rows(few.attn.columns(mine), a.attn.columns(mine), batch.sample_rows);
    ops_.gather_rows(few.residual, a.residual, batch.sample_rows);
    const std::vector<Range> few_parts = parts_of_step(n_samples, tp_);
    context.parts = few_parts;
    feed_forward(context, weights, few);
    end_gathers();
    return;
  }
  end_gathers();
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
