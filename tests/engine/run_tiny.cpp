#include "engine/run_tiny.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "checkpoint/checkpoint.h"
#include "comm/thread_comm.h"
#include "engine/engine.h"
#include "engine/held_comm.h"
#include "engine/language.h"
#include "engine/late_comm.h"
#include "engine/late_ops.h"
#include "engine/replica_root.h"
#include "engine/work.h"
#include "journal/epoch.h"
#include "journal/journal.h"
#include "journal/manifest.h"
#include "model/stage.h"
#include "ops/ops.h"

namespace lockstep {

namespace fs = std::filesystem;

namespace {

using Comms = std::vector<std::unique_ptr<Communicator>>;

struct RankComms {
  std::unique_ptr<Communicator> world, replica, tp;
};

std::vector<RankComms> make_comms(const Mesh& mesh) {
  std::vector<RankComms> comms(mesh.n_ranks());
  Comms world = make_thread_comms(mesh.n_ranks());
  for (int r = 0; r < mesh.n_ranks(); ++r) comms[r].world = std::move(world[r]);
  for (int d = 0; d < mesh.dp; ++d) {
    Comms replica = make_thread_comms(mesh.pp * mesh.tp);
    for (int i = 0; i < mesh.pp * mesh.tp; ++i) comms[mesh.replica_ranks(d)[i]].replica = std::move(replica[i]);
    for (int p = 0; p < mesh.pp; ++p) {
      Comms tp = make_thread_comms(mesh.tp);
      for (int t = 0; t < mesh.tp; ++t) comms[mesh.rank({d, p, t})].tp = std::move(tp[t]);
    }
  }
  return comms;
}

struct Job {
  std::string model_directory, input, out_dir;
  InputFile file;
  TinyRun run;
  std::atomic<bool>* others_began;  // more lines than they ask for at first
};

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void run_rank(const Job& job, int rank, RankComms& comms) {
  const TinyRun& run = job.run;
  const Mesh& mesh = run.mesh;
  const Place place = mesh.place(rank);
  const auto checkpoint = Checkpoint::open(job.model_directory);
  auto ops = make_cpu_ops({.n_threads = run.n_threads, .n_slots = static_cast<int>(run.max_sequences)});
  bool others_waited = false;
  if (run.late_first_step && rank == 0)
    ops = std::make_unique<LateOps>(std::move(ops), [&job, &others_waited, until_s = now_s() + 20] {
      others_waited = others_waited || now_s() > until_s;
      return others_waited || job.others_began->load();
    });
  const Language language(*checkpoint, {.seed = run.seed}, run.max_model_len);
  NodeReader reader;
  Stage stage(*checkpoint,
              {.mesh = mesh,
               .place = place,
               .dtype = run.dtype,
               .vocab = language.vocab(),
               .max_model_len = run.max_model_len,
               .max_batch_tokens = run.max_batch_tokens,
               .max_sequences = run.max_sequences},
              *ops, *comms.tp, *comms.replica, reader);
  stage.allocate_kv(run.n_pages, run.n_host_pages);

  std::unique_ptr<WorkServer> server;
  std::vector<int> roots;
  for (int d = 0; d < mesh.dp; ++d) roots.push_back(mesh.rank(mesh.root(d)));
  std::vector<uint32_t> all(job.file.lines().size());
  std::iota(all.begin(), all.end(), 0u);
  if (rank == 0) server = std::make_unique<WorkServer>(job.file.lines(), all, roots);
  std::unique_ptr<JournalWriter> journal;
  std::unique_ptr<ReplicaRoot> root;
  if (place == mesh.root(place.dp)) {
    journal = std::make_unique<JournalWriter>(job.out_dir, 1, place.dp);
    root = std::make_unique<ReplicaRoot>(language, WorkClient(*comms.world, server.get(), place.dp), *journal,
                                         ReplicaRootOptions{.input = job.input,
                                                            .model_name = "tiny",
                                                            .max_open = 2 * run.max_sequences,
                                                            .lag = run.lag >= 0 ? run.lag : mesh.pp - 1,
                                                            .now_s = [] { return 0.0; },
                                                            .stop_asked = [] { return false; },
                                                            .on_finished = [](const FinishedLine&) {}});
  }
  const int lag = run.lag >= 0 ? run.lag : mesh.pp - 1;
  std::function<void()> serve_others;
  if (server && mesh.dp > 1) serve_others = [&] { server->poll(*comms.world); };
  Engine engine(stage,
                {.n_pages = run.n_pages,
                 .max_batch_tokens = run.max_batch_tokens,
                 .max_sequences = run.max_sequences,
                 .max_model_len = run.max_model_len,
                 .lag = lag,
                 .resolve_references = mesh.pp == 1,
                 .prefix_cache = run.prefix_cache,
                 .n_host_pages = run.n_host_pages,
                 .token_unit = run.token_unit},
                *comms.replica, root.get(),
                {.lag = lag,
                 .ahead = run.ahead >= 0 ? run.ahead
                          : mesh.pp == 1 ? lag
                                         : 0,
                 .root = (mesh.pp - 1) * mesh.tp,
                 .last_stage = place.pp == mesh.pp - 1,
                 .now_s = now_s,
                 .comm_s = [] { return 0.0; },
                 .on_step =
                     [&](const StepTiming& t) {  // a part is no longer than its whole, whatever the clocks say
                       check(0 <= t.wait_s && t.wait_s <= t.comm_s && t.comm_s <= t.duration_s, "step ", t.step, ": waited ",
                             t.wait_s, " s of ", t.comm_s, " s of communication of ", t.duration_s, " s");
                       if (place.dp > 0 && t.n_seqs > 8) *job.others_began = true;
                     },
                 .meanwhile = serve_others});
  while (engine.step())
    if (server) server->poll(*comms.world);
  if (root) root->commit();
  for (int attempt = 0; server && !server->finished(); ++attempt) {
    server->poll(*comms.world);
    relax(attempt);
  }
  check((stage.host_kv_bytes() > 0) == (run.n_host_pages > 0), "host pages: ", run.n_host_pages, ", of which ",
        stage.host_kv_bytes(), " bytes were used");
  check(!others_waited, "the other replica waited for lines while rank 0's device computed");
  comms.world->barrier();
}

}  // namespace

Records run_tiny(const std::string& model_directory, const std::string& prompts, const TinyRun& run) {
  static std::atomic<int> count = 0;
  const fs::path dir = fs::temp_directory_path() / concat("lockstep_engine_", ::getpid(), "_", count++);
  fs::create_directories(dir);
  const std::string input = dir / "prompts.jsonl";
  std::ofstream(input) << prompts;
  const std::string out_dir = dir / "out";
  prepare_output(out_dir);
  begin_run(out_dir, {}, RunStart::fresh);
  open_epoch(out_dir, recover_journal(out_dir), "{}");
  std::atomic<bool> others_began = false;
  const Job job{model_directory, input, out_dir, InputFile::open(input, 0), run, &others_began};

  std::vector<RankComms> comms = make_comms(run.mesh);
  std::mutex mutex;
  std::string first_error;
  {
    std::vector<std::jthread> ranks;
    for (int r = 0; r < run.mesh.n_ranks(); ++r)
      ranks.emplace_back([&, r] {
        RankComms mine = std::move(comms[r]);
        if (run.hold_broadcasts) mine.replica = std::make_unique<HeldComm>(std::move(mine.replica));
        if (run.late_gathers) mine.tp = std::make_unique<LateComm>(std::move(mine.tp));
        try {
          run_rank(job, r, mine);
        } catch (const std::exception& e) {
          const std::lock_guard lock(mutex);
          if (first_error.empty()) first_error = concat("rank ", r, ": ", e.what());
        }
      });
  }
  check(first_error.empty(), first_error);
  Records records;
  const JournalState state = recover_journal(out_dir);
  for (const auto& [id, done] : state.done) {
    std::string record = read_record(state, done);
    records.emplace(nlohmann::json::parse(record)["custom_id"], std::move(record));
  }
  fs::remove_all(dir);
  return records;
}

}  // namespace lockstep
