#include "commands/run.h"

#include "base/log.h"
#include "base/phase_timer.h"
#include "base/signals.h"
#include "base/units.h"
#include "comm/mpi_comm.h"
#include "commands/agree.h"
#include "commands/device.h"
#include "commands/finish.h"
#include "commands/job.h"
#include "commands/last_word.h"
#include "commands/layout.h"
#include "commands/memory_log.h"
#include "commands/model_source.h"
#include "commands/replica.h"
#include "commands/threads.h"
#include "engine/engine.h"
#include "engine/language.h"
#include "engine/replica_root.h"
#include "engine/work.h"
#include "model/stage.h"
#include "ops/ops.h"
#include "telemetry/gpu_sampler.h"
#include "telemetry/progress.h"
#include "telemetry/raw_timings.h"

namespace lockstep {

// open · agree · load · while work: step · merge, report
ExitCode run(MpiSession& mpi, const RunOptions& given) {
  PhaseTimer phases;
  phases.begin("open");  // at once: timings.h5 has the phases one after the other from zero on
  const auto world = make_mpi_world();
  const auto everyone = [&](const std::function<void()>& work) { together(*world, mpi.host, work); };
  const bool is_rank_0 = mpi.rank == 0;

  // ---- open: all that can be refused is refused here, before a weight is read ----
  Mesh mesh;
  Place place;
  RunOptions options = given;
  ModelSource model;
  std::unique_ptr<Groups> groups;
  std::unique_ptr<Ops> ops;
  int64_t n_pages = 0, n_host_pages = 0;
  int device = 0;  // the GPU
  const int n_threads = threads_for_rank(mpi, given.threads);
  const auto node = make_mpi_comm(mpi.node_ranks);
  everyone([&] { options = with_device(given); });
  everyone([&] {
    device = choose_device(options, mpi, *node);
    model = open_model(options);
    ops = make_ops(options, device, n_threads);
  });
  mesh = decide_layout(*world, mpi, options, model, *ops);
  place = mesh.place(mpi.rank);
  init_log({mpi.host, mpi.rank, mpi.size, concat(name_of(place), options.device == "cuda" ? concat(" gpu", device) : "")});
  const std::vector<std::string> names = name_ranks(*world, mpi, options, device);
  everyone([&] {
    check_device(options, mesh);
    if (const int64_t n = most_sequences(given, options, mesh); n != options.max_sequences) {
      options.max_sequences = n;
      ops.reset();  // its memory first
      ops = make_ops(options, device, n_threads);
    }
    const Shard shard = make_shard(model.checkpoint->config(), mesh, place, model.checkpoint->config().vocab);
    n_pages = affordable_pages(options, model, shard, *ops, mpi.node_size);
  });
  everyone([&] { identify(model, *node); });
  Job job;
  everyone([&] {
    if (!is_rank_0) return;
    for (const std::string& warning : model.checkpoint->warnings()) log_warning(warning);
    job = open_job(options, model, ops->kernel_class());
  });
  std::vector<std::pair<std::string, std::string>> facts;
  everyone([&] { facts = facts_of(options, model, *ops); });
  agree_on(*world, mpi.host, facts);
  if (from_rank_0(*world, job.plan.finished ? "finished" : "work") == "finished")
    return already_finished(job, options, everyone);

  // ---- load ----
  phases.begin("load");
  const auto now_s = [&phases] { return phases.now_s(); };
  const RankGpu gpu = gpu_of_rank(options, mpi, device);
  GpuSampler gpu_sampler(gpu.read, now_s);
  gpu_sampler.begin("load");
  groups = make_groups(mesh, place, options, model.checkpoint->config(), *ops, names);
  const bool is_root = place == mesh.root(place.dp);
  const int root_in_replica = (mesh.pp - 1) * mesh.tp;
  std::unique_ptr<Language> language;
  std::unique_ptr<Stage> stage;
  everyone([&] {
    if (is_root) language = std::make_unique<Language>(*model.checkpoint, model.defaults, model.max_model_len);
  });
  const int64_t vocab = smallest(*groups->replica, is_root ? language->vocab() : INT64_MAX);
  std::unique_ptr<NodeReader> reader;
  everyone([&] { reader = make_node_reader(mesh, mpi, model, *node); });
  const double load_begin_s = phases.now_s();
  MemoryLog memory(free_bytes_of(options));
  everyone([&] {
    stage = std::make_unique<Stage>(*model.checkpoint,
                                    StageOptions{.mesh = mesh,
                                                 .place = place,
                                                 .dtype = model.dtype,
                                                 .vocab = vocab,
                                                 .max_model_len = model.max_model_len,
                                                 .max_batch_tokens = options.max_batch_tokens,
                                                 .max_sequences = sequences_of_step(options, mesh)},
                                    *ops, *groups->tp, *groups->replica, *reader);
  });
  log_reading(*reader, *node, phases.now_s() - load_begin_s);
  reader.reset();
  everyone([&] {  // what is free now, with the weights in their place
    memory.add("weights and activations", stage->weight_bytes() + stage->activation_bytes());
    n_pages = std::min(n_pages, affordable_pages(options, model, stage->shard(), *ops, mpi.node_size));
  });
  n_pages = smallest(*groups->replica, n_pages);
  n_host_pages = smallest(*groups->replica, affordable_host_pages(options, stage->page_bytes(), n_pages, mpi.node_size));
  everyone([&] {
    stage->allocate_kv(n_pages, n_host_pages);
    memory.add("KV pages", static_cast<uint64_t>(n_pages) * stage->page_bytes());
    leave_if_stopped();  // an old run that --overwrite replaces is still whole
    if (is_rank_0) begin_job(job, about_run(options, mesh, mpi));
  });
  if (const std::string line = memory.line(); !line.empty()) log_info("GPU memory: ", line);
  if (n_host_pages > 0)
    log_info("host memory: up to ", format_bytes(static_cast<uint64_t>(n_host_pages) * stage->page_bytes()),
             " for sequences that are preempted");
  const int64_t epoch = std::stoll(from_rank_0(*world, std::to_string(job.epoch)));
  // From here on what the scheduler holds; buffers, pages and slots stand, for the device's most.
  const auto n_at_a_time = [&] { return sequences_at_a_time(given, options, mesh, job.input->lines(), job.plan.to_run); };
  options.max_sequences = std::stoll(from_rank_0(*world, is_rank_0 ? std::to_string(n_at_a_time()) : ""));

  // ---- while work: admit, schedule, forward, sample, commit, retire ----
  phases.begin("run");
  gpu_sampler.begin("run");
  RawTimings timings(options.output, epoch, mpi.rank);
  timings.add(RankPlace{place.dp, place.pp, place.tp});
  std::unique_ptr<WorkServer> server;
  std::vector<int> roots;
  for (int d = 0; d < mesh.dp; ++d) roots.push_back(mesh.rank(mesh.root(d)));
  if (is_rank_0) server = std::make_unique<WorkServer>(job.input->lines(), std::move(job.plan.to_run), roots);
  std::unique_ptr<JournalWriter> journal;
  std::unique_ptr<ReplicaRoot> root;
  if (is_root) {
    journal = std::make_unique<JournalWriter>(options.output, epoch, place.dp);
    root = std::make_unique<ReplicaRoot>(
        *language, WorkClient(*world, server.get(), place.dp), *journal,
        ReplicaRootOptions{.input = options.input,
                           .model_name = model.name,
                           .require_model = options.require_model,
                           .max_open = 2 * options.max_sequences,
                           .n_slots = mesh.dp > 1 ? options.max_sequences : 0,
                           .lag = lag_of(options, mesh),
                           .now_s = now_s,
                           .stop_asked = stop_requested,
                           .on_finished = [&](const FinishedLine& line) { timings.add(timing_of(line, epoch, place.dp)); }});
  }
  // A step of this rank's may take long, and the others' lines would wait for its end.
  std::function<void()> serve_others;
  if (is_rank_0 && mesh.dp > 1) serve_others = [&] { server->poll(*world); };
  Engine engine(*stage, scheduling_of(options, model, mesh, n_pages, n_host_pages), *groups->replica, root.get(),
                {.lag = lag_of(options, mesh),
                 .ahead = ahead_of(options, mesh),
                 .root = root_in_replica,
                 .last_stage = place.pp == mesh.pp - 1,
                 .now_s = now_s,
                 .comm_s = [&] { return groups->comm_s; },
                 .on_step = [&](const StepTiming& step) { timings.add(step); },
                 .meanwhile = serve_others});
  Progress progress(is_rank_0 && options.progress != "off", is_rank_0 ? static_cast<int64_t>(job.input->lines().size()) : 0,
                    job.plan.n_done + job.plan.n_failed);
  bool asked_rank_0 = false;  // to stop: on a rank that hands out no lines
  const auto serve = [&] {    // between steps; rank 0: other replicas' requests, the lock, the progress line
    timings.add(gpu_sampler.take_samples());
    if (!is_rank_0 && !is_root && stop_requested() && !std::exchange(asked_rank_0, true)) ask_to_stop(*world);
    if (!is_rank_0) return;
    server->poll(*world);
    if (stop_requested()) server->stop(*world);
    job.lock->heartbeat();
    const WorkTotals totals = server->totals();
    progress.show(now_s(), totals.n_done, totals.n_prompt_tokens + totals.n_generated_tokens);
  };
  try {
    constexpr double kFirstAsks_s = 0.2;  // this rank's first step keeps the others' first lines waiting, if they ask later
    const double begin_s = phases.now_s();
    for (int attempt = 0; is_rank_0 && !server->others_have_asked(0) && phases.now_s() < begin_s + kFirstAsks_s; ++attempt) {
      serve();
      relax(attempt);
    }
    while (engine.step()) serve();
  } catch (const std::exception& e) {  // leaving would free the GPU's memory, which waits for kernels, which wait for ranks
    timings.flush();
    job.lock.reset();
    end_all_ranks(mpi, e);
  }
  if (is_root) root->commit();
  for (int attempt = 0; is_rank_0 && !server->finished(); ++attempt) {
    serve();
    relax(attempt);
  }
  progress.finish();
  const Outcome outcome = sum_outcomes(*world, is_root ? root->totals() : WorkTotals{}, engine.stopped());
  gpu_sampler.stop();

  // ---- merge, report ----
  phases.begin("merge");
  timings.add(gpu_sampler.take_samples());
  for (const auto& phase : phases.phases())
    if (phase.name != "merge") timings.add(PhaseTiming{phase.name, phase.seconds});
  timings.flush();
  RunRecord record = describe(*world, options, model, mesh, mpi, *ops, *stage, n_pages, n_threads);
  record.energy = gather_energy(
      *world, {gpu.read ? concat(mpi.host, " ", gpu.bus_id) : "", gpu_sampler.from_counter(), gpu_sampler.energies()});
  ExitCode code = ExitCode::done;
  everyone([&] {
    if (is_rank_0) code = finish_run(job, outcome, phases, std::move(record));
  });
  return code;
}

}  // namespace lockstep
