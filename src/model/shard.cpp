#include "model/shard.h"

#include <algorithm>

namespace lockstep {

std::vector<Range> stage_layers(const ModelConfig& config, int pp) {
  check(1 <= pp && pp <= config.n_layers, pp, " stages of ", config.n_layers, " layers");
  if (pp == 1) return {{0, config.n_layers}};
  const int64_t q_cols = config.n_heads * config.head_dim, kv_cols = config.n_kv_heads * config.head_dim;
  // A layer's parameters 3 / 2 times, the head's 1 / 2; both doubled. Below 2^46, times 2^10 layers.
  const int64_t layer_cost = 3 * config.hidden * (2 * q_cols + 2 * kv_cols + 3 * config.ffn);
  const int64_t head_cost = config.hidden * config.vocab;
  int64_t n_last = 1, least = INT64_MAX;
  for (int64_t n = 1; n <= config.n_layers - (pp - 1); ++n) {
    const int64_t n_others = (config.n_layers - n + pp - 2) / (pp - 1);  // of the fullest of the other stages
    const int64_t busiest = std::max(n_others * layer_cost, n * layer_cost + head_cost);
    if (busiest <= least) least = busiest, n_last = n;
  }
  const int64_t n_before = config.n_layers - n_last;
  std::vector<Range> stages;
  for (int p = 0; p < pp - 1; ++p) stages.push_back(split(n_before, pp - 1, p));
  stages.push_back({n_before, config.n_layers});
  return stages;
}

Shard make_shard(const ModelConfig& config, const Mesh& mesh, const Place& place, int64_t vocab) {
  if (mesh.tp > config.n_kv_heads)
    fail(ExitCode::usage, "--tp ", mesh.tp, ": the model has ", config.n_kv_heads, " kv heads, one rank needs at least one");
  if (mesh.pp > config.n_layers)
    fail(ExitCode::usage, "--pp ", mesh.pp, ": the model has ", config.n_layers, " layers, one stage needs at least one");

  Shard shard;
  shard.place = place;
  shard.layers = stage_layers(config, mesh.pp)[place.pp];
  shard.first_stage = place.pp == 0;
  shard.last_stage = place.pp == mesh.pp - 1;
  shard.vocab = vocab;
  const int64_t group_cols = config.n_heads / config.n_kv_heads * config.head_dim;  // query columns of one kv group
  const int64_t n_chunks = (vocab + kVocabChunk - 1) / kVocabChunk;
  for (int t = 0; t < mesh.tp; ++t) {
    const Range groups = split(config.n_kv_heads, mesh.tp, t);
    const Range chunks = split(n_chunks, mesh.tp, t);
    shard.kv_heads.push_back(groups);
    shard.attn_cols.push_back({groups.begin * group_cols, groups.end * group_cols});
    shard.hidden_cols.push_back(split(config.hidden, mesh.tp, t));
    shard.ffn_cols.push_back(split(config.ffn, mesh.tp, t));
    shard.vocab_cols.push_back({std::min(chunks.begin * kVocabChunk, vocab), std::min(chunks.end * kVocabChunk, vocab)});
  }
  const Range kv = shard.mine(shard.kv_heads);
  shard.heads = {kv.size() * (config.n_heads / config.n_kv_heads), kv.size(), config.head_dim};
  shard.q_rows = shard.mine(shard.attn_cols);
  shard.kv_rows = {kv.begin * config.head_dim, kv.end * config.head_dim};
  return shard;
}

}  // namespace lockstep
