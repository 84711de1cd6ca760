#include "model/shard.h"

#include <algorithm>

namespace lockstep {

Shard make_shard(const ModelConfig& config, const Mesh& mesh, const Place& place, int64_t vocab) {
  if (mesh.tp > config.n_kv_heads)
    fail(ExitCode::usage, "--tp ", mesh.tp, ": the model has ", config.n_kv_heads, " kv heads, one rank needs at least one");
  if (mesh.pp > config.n_layers)
    fail(ExitCode::usage, "--pp ", mesh.pp, ": the model has ", config.n_layers, " layers, one stage needs at least one");

  Shard shard;
  shard.place = place;
  shard.layers = split(config.n_layers, mesh.pp, place.pp);
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
