// What a step of the scheduler costs, with no model behind it: it runs on every rank, before every step.
#include <benchmark/benchmark.h>

#include <deque>
#include <utility>

#include "sched/scheduler.h"

namespace lockstep {
namespace {

// `n_sequences` decoding at about 700 tokens each; `n_waiting` more requests in the queue, which must not cost anything.
void decode_step(benchmark::State& state) {
  const int64_t n_sequences = state.range(0), n_waiting = state.range(1);
  Scheduler scheduler(
      {.n_pages = n_sequences * 260, .max_batch_tokens = 8192, .max_sequences = n_sequences, .max_model_len = 4096, .lag = 1});
  Request request;
  request.prompt.assign(512, 1);
  request.sampling.max_tokens = 400;
  RequestId next_id = 0;
  StepEvents first;
  for (; next_id < n_sequences + n_waiting; ++next_id) {
    request.id = next_id;
    first.admitted.push_back(request);
  }
  std::deque<StepEvents> uncommitted;
  int64_t n_tokens = 0, n_steps = 0;
  for (auto _ : state) {
    if (uncommitted.size() > 1) {
      scheduler.commit(uncommitted.front());
      uncommitted.pop_front();
    }
    const StepBatch batch = scheduler.schedule();
    n_tokens += batch.n_tokens();
    state.PauseTiming();
    StepEvents events;
    events.step = batch.step;
    if (n_steps++ == 0) events.admitted = std::move(first.admitted);
    for (const SampleRow& row : batch.samples) {
      const bool finished = row.position + 1 == 400;
      if (finished) {  // another one takes its place in the queue
        request.id = next_id++;
        events.admitted.push_back(request);
      }
      events.sampled.push_back({row.request, 1, finished});
    }
    uncommitted.push_back(std::move(events));
    state.ResumeTiming();
  }
  state.counters["tokens_per_step"] = static_cast<double>(n_tokens) / static_cast<double>(n_steps);
}
BENCHMARK(decode_step)->ArgsProduct({{64, 256, 1024}, {0, 20000}})->Iterations(3000)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace lockstep

BENCHMARK_MAIN();
