#include "commands/layout.h"

#include <algorithm>
#include <optional>

#include "base/bytes.h"
#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "commands/agree.h"
#include "commands/device.h"
#include "model/stage.h"
#include "sched/page_pool.h"

namespace lockstep {

namespace {

std::string asked(const RunOptions& options) {
  std::string text;
  if (options.tp) text += concat(" --tp ", *options.tp);
  if (options.pp) text += concat(" --pp ", *options.pp);
  if (options.dp) text += concat(" --dp ", *options.dp);
  return text.substr(text.empty() ? 0 : 1);
}

// All layouts that the options permit, the smallest replicas first, then those with the fewest stages.
std::vector<Mesh> permitted(const RunOptions& options, int n_ranks) {
  std::vector<Mesh> meshes;
  for (int replica = 1; replica <= n_ranks; ++replica) {
    if (n_ranks % replica != 0 || (options.dp && *options.dp != n_ranks / replica)) continue;
    for (int pp = 1; pp <= replica; ++pp) {
      if (replica % pp != 0 || (options.pp && *options.pp != pp) || (options.tp && *options.tp != replica / pp)) continue;
      meshes.push_back({.dp = n_ranks / replica, .pp = pp, .tp = replica / pp});
    }
  }
  return meshes;
}

}  // namespace

Mesh choose_layout(const RunOptions& options, const LayoutFacts& facts) {
  const auto n_ranks = static_cast<int>(facts.node_of_rank.size());
  const std::vector<Mesh> all = permitted(options, n_ranks);
  if (all.empty()) {
    const int given = options.tp.value_or(1) * options.pp.value_or(1) * options.dp.value_or(1);
    fail(ExitCode::usage, asked(options), " makes ", given, " ranks, the job has ", n_ranks, " (tp x pp x dp = ranks)");
  }
  std::vector<Mesh> possible;
  for (const Mesh& mesh : all)
    if (mesh.tp <= facts.n_kv_heads && mesh.pp <= facts.n_layers && (options.tp || !tp_spans_nodes(mesh, facts.node_of_rank)))
      possible.push_back(mesh);
  if (possible.empty()) return all.front();  // make_shard refuses it with the numbers of the model
  if (possible.size() == 1) return possible.front();

  uint64_t least = UINT64_MAX;
  Mesh smallest;
  for (const Mesh& mesh : possible) {
    const uint64_t needed = facts.bytes_needed(mesh.tp, mesh.pp);
    if (needed <= facts.rank_bytes) return mesh;
    if (needed < least) least = needed, smallest = mesh;
  }
  fail(ExitCode::usage, asked(options), asked(options).empty() ? "" : ": ", "no layout of ", n_ranks,
       " ranks holds the model: with --tp ", smallest.tp, " --pp ", smallest.pp, " a rank needs ", format_bytes(least),
       ", there are ", format_bytes(facts.rank_bytes), " (--tp, --pp and --dp together are taken as they are)");
}

bool tp_spans_nodes(const Mesh& mesh, const std::vector<int>& node_of_rank) {
  for (int rank = 0; rank < mesh.n_ranks(); ++rank)
    if (node_of_rank[rank] != node_of_rank[rank - rank % mesh.tp]) return true;
  return false;
}

Mesh decide_layout(Communicator& world, const MpiSession& mpi, const RunOptions& options, const ModelSource& model,
                   const Ops& ops) {
  const ModelConfig& config = model.checkpoint->config();
  RankMemory memory;
  together(world, mpi.host, [&] { memory = memory_of_rank(options, mpi.node_size); });
  LayoutFacts facts;
  facts.rank_bytes = static_cast<uint64_t>(smallest(world, static_cast<int64_t>(memory.bytes)));
  facts.n_kv_heads = config.n_kv_heads, facts.n_layers = config.n_layers;
  ByteWriter w;
  w.put(mpi.node_ranks.front());
  for (const auto& bytes : world.exchange(w.bytes())) facts.node_of_rank.push_back(ByteReader(bytes).get<int>());
  facts.bytes_needed = [&](int tp, int pp) {
    const Mesh mesh{.dp = 1, .pp = pp, .tp = tp};
    uint64_t most = 0;
    for (int stage = 0; stage < pp; ++stage) {  // the first tensor rank has the most
      const Shard shard = make_shard(config, mesh, {0, stage, 0}, config.vocab);
      const size_t sequence = kv_page_bytes(shard, model.dtype, ops) * static_cast<size_t>(pages_for(model.max_model_len));
      const auto kv = options.kv_memory.value_or(static_cast<uint64_t>(static_cast<double>(sequence) / memory.kv_share));
      most = std::max(most, expected_weight_bytes(config, shard, model.dtype, model.max_model_len) + kv);
    }
    return most;
  };

  Mesh mesh;
  together(world, mpi.host, [&] {
    if (world.rank() != 0) return;
    mesh = choose_layout(options, facts);
    if (tp_spans_nodes(mesh, facts.node_of_rank))
      log_warning("--tp ", mesh.tp,
                  " spans nodes: each layer waits for the network several times; --pp across nodes waits once");
  });
  ByteWriter chosen;
  chosen.put(mesh);
  std::vector<std::byte> bytes = chosen.take();
  world.broadcast(bytes, 0);
  return ByteReader(bytes).get<Mesh>();
}

int lag_of(const RunOptions& options, const Mesh& mesh) {
  return options.lag.value_or(mesh.pp - 1 + (options.device == "cuda"));
}

int turns_of(const RunOptions& options, const Mesh& mesh) { return mesh.pp == 1 ? 1 : lag_of(options, mesh) + 1; }

int64_t sequences_of_step(const RunOptions& options, const Mesh& mesh) {
  const int64_t n_turns = turns_of(options, mesh);
  return (options.max_sequences + n_turns - 1) / n_turns;
}

int ahead_of(const RunOptions& options, const Mesh& mesh) {
  if (mesh.pp == 1) return lag_of(options, mesh);
  return options.device == "cuda" ? std::min(1, lag_of(options, mesh)) : 0;
}

}  // namespace lockstep
