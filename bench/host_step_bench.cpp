// What the host does in a step beside the device's work: scheduling, batches, answers, records, journal, in the program's own
// loop over a device that computes nothing. A GPU of one step ahead stands still wherever this takes longer than its step.
//   bench_host_step MODEL_DIR (config.json alone is enough) INPUT.jsonl [MAX_SEQUENCES [MAX_BATCH_TOKENS]]
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <vector>

#include "commands/replica.h"
#include "engine/engine.h"
#include "tests/commands/bookkeeping.h"

namespace lockstep {
namespace {

// Memory is taken and never touched; every sample is one fixed token.
class NoOps final : public Ops {
 public:
  std::string kernel_class() const override { return "none"; }
  Buffer allocate(size_t bytes) override {
    const size_t whole = std::max<size_t>(bytes, 4096);
    void* p = ::mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    check(p != MAP_FAILED, "no room for ", bytes, " bytes");
    return {p, bytes, +[](void*) {}};
  }
  Buffer allocate_host(size_t bytes) override { return allocate(bytes); }
  void upload(TensorView, const float*) override {}
  void download(float*, TensorView) override {}
  LinearWeight load_linear(int64_t n_out, int64_t k, DType dtype, const RowReader&) override {
    LinearWeight w;
    w.n_out = n_out, w.k = k, w.dtype = dtype;
    return w;
  }
  size_t kv_page_bytes(DType dtype, int64_t n_kv_heads, int64_t head_dim) const override {
    return static_cast<size_t>(2 * n_kv_heads * head_dim * kPageSize) * size_of(dtype);
  }
  void copy_pages(PageWay, const KvPool&, std::span<const HostPage>) override {}
  DeviceBatch upload_batch(const StepBatch& batch) override { return {.host = &batch}; }
  void embed(TensorView, TensorView, const DeviceBatch&) override {}
  void rms_norm(TensorView, TensorView, TensorView, float) override {}
  void add(TensorView, TensorView) override {}
  void add_rms_norm(TensorView, TensorView, TensorView, TensorView, float) override {}
  void linear(TensorView, TensorView, const LinearWeight&) override {}
  void rope_store_kv(TensorView, TensorView, TensorView, float, TensorView, HeadShape, KvPages, const DeviceBatch&) override {}
  void attention(TensorView, TensorView, HeadShape, KvPages, float, int32_t, const DeviceBatch&) override {}
  void silu_mul(TensorView, TensorView) override {}
  void gather_rows(TensorView, TensorView, const int32_t*) override {}
  void sample(TensorView, const DeviceBatch& batch) override {
    StepOutcome& out = outcomes_[batch.host->step];
    for (const SampleRow& row : batch.host->samples)
      out.sampled.push_back({.request = row.request, .token = 7, .position = row.position});
  }
  void score(TensorView, const DeviceBatch&, Range) override {}
  StepOutcome collect(int64_t step) override {
    StepOutcome out = std::move(outcomes_[step]);
    outcomes_.erase(step);
    return out;
  }

 private:
  std::map<int64_t, StepOutcome> outcomes_;
};

struct Class {
  std::vector<double> seconds;
  int64_t n_tokens = 0;
};

void measure(const RunOptions& given, const std::string& out_dir) {
  const RunOptions options = given;
  const ModelSource model = open_model(options);
  const Language language(*model.checkpoint, model.defaults, model.max_model_len);
  NoOps ops;
  const auto world = make_solo_comm(), tp = make_solo_comm(), replica = make_solo_comm();
  const Mesh mesh;
  NodeReader reader;
  Stage stage(*model.checkpoint,
              {.mesh = mesh,
               .place = {},
               .dtype = DType::bf16,
               .vocab = language.vocab(),
               .max_model_len = model.max_model_len,
               .max_batch_tokens = options.max_batch_tokens,
               .max_sequences = options.max_sequences},
              ops, *tp, *replica, reader);
  const int64_t n_pages = affordable_pages(options, model, stage.shard(), ops, 1);
  stage.allocate_kv(n_pages);
  Job job = open_job(options, model, "none");
  begin_job(job, R"({"host":"here"})");
  WorkServer server(job.input->lines(), job.plan.to_run, {0});
  JournalWriter journal(out_dir, job.epoch, 0);
  RawTimings timings(out_dir, job.epoch, 0);
  const double begin = wall_s();
  const auto now_s = [begin] { return wall_s() - begin; };
  ReplicaRoot root(language, WorkClient(*world, &server, 0), journal,
                   {.input = options.input,
                    .model_name = model.name,
                    .max_open = 2 * options.max_sequences,
                    .now_s = now_s,
                    .stop_asked = [] { return false; },
                    .on_finished = [&](const FinishedLine& line) { timings.add(timing_of(line, job.epoch, 0)); }});
  std::map<int64_t, Class> classes;  // by sequences, rounded up to a power of two; negative: with prefill
  Engine engine(stage, scheduling_of(options, model, mesh, n_pages, 0), *replica, &root,
                {.lag = 1,
                 .ahead = 1,
                 .root = 0,
                 .last_stage = true,
                 .now_s = now_s,
                 .comm_s = [] { return 0.0; },
                 .on_step =
                     [&](const StepTiming& t) {
                       timings.add(t);
                       int64_t n = 1;
                       while (n < t.n_seqs) n *= 2;
                       Class& c = classes[t.n_prefill_tokens > 0 ? -n : n];
                       c.seconds.push_back(t.duration_s);
                       c.n_tokens += t.n_prefill_tokens + t.n_decode_tokens;
                     }});
  const double cpu = cpu_s();
  while (engine.step()) server.poll(*world), job.lock->heartbeat();
  root.commit();
  std::printf(
      "%.2f s wall, %.2f s of the processor\n| sequences | steps | tokens a step | median, ms | 99 %%, ms | longest, ms "
      "|\n|---|--:|--:|--:|--:|--:|\n",
      now_s(), cpu_s() - cpu);
  for (auto& [n, c] : classes) {
    std::sort(c.seconds.begin(), c.seconds.end());
    const size_t k = c.seconds.size();
    std::printf("| up to %lld%s | %zu | %lld | %.2f | %.2f | %.2f |\n", static_cast<long long>(n < 0 ? -n : n),
                n < 0 ? ", with prefill" : "", k, static_cast<long long>(c.n_tokens / static_cast<int64_t>(k)),
                1e3 * c.seconds[k / 2], 1e3 * c.seconds[k - 1 - k / 100], 1e3 * c.seconds.back());
  }
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  using namespace lockstep;
  if (argc < 3)
    return std::fprintf(stderr, "usage: bench_host_step MODEL_DIR INPUT.jsonl [MAX_SEQUENCES [MAX_BATCH_TOKENS]]\n"), 2;
  try {
    const auto out = std::filesystem::temp_directory_path() / concat("lockstep_host_step_", ::getpid());
    std::filesystem::remove_all(out);
    RunOptions options{.model = argv[1], .input = argv[2], .output = out};
    options.load_format = "dummy";
    options.dtype = "bf16";
    options.max_model_len = 4096;
    options.lag = 1;
    options.kv_memory = uint64_t{100} << 30;
    options.max_sequences = argc > 3 ? std::atoll(argv[3]) : 1024;
    options.max_batch_tokens = argc > 4 ? std::atoll(argv[4]) : 8192;
    measure(options, options.output);
    std::filesystem::remove_all(out);
  } catch (const std::exception& e) {
    return std::fprintf(stderr, "%s\n", e.what()), 1;
  }
  return 0;
}
