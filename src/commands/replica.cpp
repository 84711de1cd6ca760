#include "commands/replica.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/bytes.h"
#include "base/log.h"
#include "base/units.h"
#include "comm/mpi_comm.h"
#include "comm/node_memory.h"
#include "comm/timed_comm.h"
#ifdef LOCKSTEP_NCCL
#include "comm/cuda/nccl_comm.h"
#endif
#include "commands/device.h"
#include "commands/layout.h"
#include "model/stage.h"
#include "records/step_batch.h"

namespace lockstep {

namespace {

constexpr int64_t kGpuTokenUnit = 128;  // rows that products of matrices on GPUs go by

// stream: of the GPU whose matrices the group passes; without a handle they are the host's, or there are none.
std::unique_ptr<Communicator> timed_group(const std::vector<int>& ranks, double* seconds,
                                          [[maybe_unused]] const std::string& name, [[maybe_unused]] StreamRef stream,
                                          [[maybe_unused]] size_t most_bytes,
                                          [[maybe_unused]] const std::vector<std::string>& names) {
  if (ranks.size() == 1) return make_solo_comm();
  std::unique_ptr<Communicator> comm = make_mpi_comm(ranks);
#ifdef LOCKSTEP_NCCL
  if (stream.handle != nullptr) {
    NcclOptions options{.stream = stream, .name = name, .most_bytes = most_bytes};
    for (const int rank : ranks) options.members.push_back(names[static_cast<size_t>(rank)]);
    comm = make_nccl_comm(std::move(comm), options);
  }
#endif
  return std::make_unique<TimedComm>(std::move(comm), seconds);
}

// The largest matrix that tensor ranks gather.
size_t most_gathered_bytes(const RunOptions& options, const ModelConfig& config, const Mesh& mesh) {
  const int64_t widest = std::max({config.hidden, config.ffn, config.n_heads * config.head_dim});
  const int64_t activations = options.max_batch_tokens * widest * 2,
                logits = sequences_of_step(options, mesh) * config.vocab * 4;
  return static_cast<size_t>(std::max(activations, logits)) + static_cast<size_t>(mesh.tp) * 256;
}

}  // namespace

std::unique_ptr<Groups> make_groups(const Mesh& mesh, const Place& place, const RunOptions& options, const ModelConfig& config,
                                    const Ops& ops, const std::vector<std::string>& names) {
  auto groups = std::make_unique<Groups>();
  std::vector<int> tp_ranks;
  for (int t = 0; t < mesh.tp; ++t) tp_ranks.push_back(mesh.rank({place.dp, place.pp, t}));
  groups->replica = timed_group(mesh.replica_ranks(place.dp), &groups->comm_s, concat("replica ", place.dp),
                                mesh.pp > 1 ? ops.stream() : StreamRef{}, 0, names);
  groups->tp = timed_group(tp_ranks, &groups->comm_s, concat("tp of stage ", place.pp, " of replica ", place.dp), ops.stream(),
                           most_gathered_bytes(options, config, mesh), names);
  return groups;
}

std::unique_ptr<NodeReader> make_node_reader(const Mesh& mesh, const MpiSession& mpi, const ModelSource& model,
                                             Communicator& node) {
  std::vector<Place> places;
  for (const int rank : mpi.node_ranks) places.push_back(mesh.place(rank));
  const bool tied = model.checkpoint->config().tied_embeddings;
  const size_t bytes = NodeReader::bytes_for(places, mesh.pp, tied);
  std::shared_ptr<std::byte> memory = bytes > 0 ? make_node_memory(node, bytes) : nullptr;
  if (bytes > 0 && !memory && mpi.node_rank == 0)
    log_warning(mpi.host, ": no shared memory of ", format_bytes(bytes), ", so each rank reads its weights for itself");
  return std::make_unique<NodeReader>(places, mpi.node_rank, mesh.pp, tied, std::move(memory));
}

void log_reading(const NodeReader& reader, Communicator& node, double seconds) {
  ByteWriter w;
  w.put(reader.bytes_read());
  uint64_t bytes = 0;
  for (const auto& one : node.exchange(w.bytes())) bytes += ByteReader(one).get<uint64_t>();
  if (bytes > 0 && node.rank() == 0)
    log_info("loaded in ", format_seconds(seconds), ": this node read ", format_bytes(bytes), " of weights, ",
             std::round(static_cast<double>(bytes) / seconds / 1e7) / 100, " GB/s");
}

int64_t affordable_pages(const RunOptions& options, const ModelSource& model, const Shard& shard, const Ops& ops,
                         int node_size) {
  const size_t bytes_a_page = kv_page_bytes(shard, model.dtype, ops);
  const int64_t for_one = pages_for(model.max_model_len);
  const uint64_t bytes = options.kv_memory ? *options.kv_memory : kv_bytes_available(options, node_size);
  const auto n_pages = std::min(static_cast<int64_t>(bytes / bytes_a_page), for_one * options.max_sequences);
  if (n_pages < for_one)
    fail(ExitCode::usage, "KV memory of ", format_bytes(bytes), options.kv_memory ? " (--kv-memory)" : " (--memory-fraction)",
         " holds ", n_pages * kPageSize, " tokens, one sequence of --max-model-len ", model.max_model_len, " needs ",
         format_bytes(bytes_a_page * for_one), ": give more, or a smaller --max-model-len");
  return n_pages;
}

int64_t affordable_host_pages(const RunOptions& options, size_t bytes_a_page, int64_t n_pages, int node_size) {
  return std::min(static_cast<int64_t>(swap_bytes(options, node_size) / bytes_a_page), n_pages);
}

SchedulerOptions scheduling_of(const RunOptions& options, const ModelSource& model, const Mesh& mesh, int64_t n_pages,
                               int64_t n_host_pages) {
  return {.n_pages = n_pages,
          .max_batch_tokens = options.max_batch_tokens,
          .max_sequences = options.max_sequences,
          .max_model_len = model.max_model_len,
          .lag = lag_of(options, mesh),
          .resolve_references = mesh.pp == 1,
          .prefix_cache = options.prefix_cache,
          .n_host_pages = n_host_pages,
          .token_unit = options.device == "cuda" ? kGpuTokenUnit : 1};
}

}  // namespace lockstep
