// make_timings FILE [N_REQUESTS [N_RANKS [N_STEPS]]]: a timings.h5 as a run of that size leaves it, for looking at `lockstep
// report` and measuring it. Two attempts, replicas of two tensor-parallel ranks, the same bytes every time.
//   make_timings out/timings.h5 100000 8 60000 && lockstep report out
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <random>

#include "telemetry/timings_h5.h"

namespace {

using namespace lockstep;

struct Size {
  int n_requests = 100000, n_ranks = 8, n_steps = 60000;  // steps of a replica
};

double uniform(std::mt19937_64& random) { return static_cast<double>(random() >> 11) * 0x1p-53; }

// The steps of one replica: prefill first, then mostly decode; fewer sequences towards the end.
std::vector<StepTiming> steps_of_replica(std::mt19937_64& random, int n, double begin_s, double& end_s) {
  std::vector<StepTiming> steps;
  double now_s = begin_s;
  for (int i = 0; i < n; ++i) {
    const double rest = 1 - static_cast<double>(i) / n;
    StepTiming t{.step = i, .start_s = now_s};
    t.n_seqs = static_cast<int32_t>(256 * std::min(1.0, 12 * rest)) + 1;
    t.n_decode_tokens = t.n_seqs;
    if (i < n / 200)
      t.n_decode_tokens = 0, t.n_prefill_tokens = 2048;
    else if (random() % 3 == 0 && rest > 0.08)
      t.n_prefill_tokens = static_cast<int32_t>(random() % 1800) + 1;
    const int n_tokens = t.n_prefill_tokens + t.n_decode_tokens;
    t.duration_s = (4e-3 + 9e-6 * n_tokens) * (0.9 + 0.25 * uniform(random) * uniform(random));
    if (random() % 4000 == 0) t.duration_s *= 12;
    t.n_pages = static_cast<int64_t>(t.n_seqs) * 40 + static_cast<int64_t>(900 * std::sin(i * 20.0 / n)) + 900;
    now_s += t.duration_s + 1e-4;
    steps.push_back(t);
  }
  end_s = now_s;
  return steps;
}

// A GPU that warms up while it loads, and holds its clock down when it is hot.
void add_gpu(std::mt19937_64& random, Timings& all, int attempt, int rank, double end_s) {
  double joules = 0, celsius = 30;
  for (double now_s = 1.2; now_s < end_s; now_s += 1) {
    const bool loads = now_s < 21.5;
    const double watts = loads ? 120 + 30 * uniform(random) : 560 + 10 * rank + 90 * uniform(random);
    celsius += 0.02 * ((loads ? 40 : 66 + rank) - celsius);
    all.gpus[rank].push_back({attempt,
                              {.time_s = now_s,
                               .reading = {.power_w = watts,
                                           .temperature_c = std::floor(celsius),
                                           .sm_clock_mhz = celsius > 64 ? 1905.0 : 1980.0,
                                           .memory_clock_mhz = 2619,
                                           .utilisation_percent = loads ? 0.0 : 97.0,
                                           .memory_utilisation_percent = loads ? 0.0 : 55.0,
                                           .energy_j = joules,
                                           .memory_used_bytes = int64_t{loads ? 10 : 120} << 30,
                                           .throttle_reasons = 4}}});
    joules += watts;
  }
}

Timings make(const Size& size) {
  std::mt19937_64 random(1);
  Timings all;
  const int n_replicas = std::max(1, size.n_ranks / 2);
  std::vector<double> ends(2);
  for (int attempt = 1; attempt <= 2; ++attempt) {
    const int n_steps = attempt == 1 ? size.n_steps * 7 / 10 : size.n_steps * 3 / 10;
    for (int replica = 0; replica < n_replicas; ++replica) {
      double end_s = 0;
      const auto steps = steps_of_replica(random, n_steps - replica * n_steps / 60, 21.5, end_s);
      ends[attempt - 1] = std::max(ends[attempt - 1], end_s);
      for (int rank = 2 * replica; rank < std::min(2 * replica + 2, size.n_ranks); ++rank) {
        all.places[{attempt, rank}] = {replica, 0, rank % 2};
        for (StepTiming t : steps) {
          t.comm_s = t.duration_s * (0.12 + 0.1 * uniform(random) + (rank == 3 ? 0.25 : 0));
          t.wait_s = rank % 2 == 1 ? t.duration_s * 0.03 * uniform(random) : 0;
          all.steps[rank].push_back({attempt, t});
        }
        add_gpu(random, all, attempt, rank, end_s);
        all.phases.push_back({attempt, rank, {"open", 1.2}});
        all.phases.push_back({attempt, rank, {"load", 20 + 0.3 * uniform(random)}});
        if (attempt == 2) all.phases.push_back({attempt, rank, {"run", end_s - 21.5}});
      }
    }
  }
  all.phases.push_back({2, 0, {"merge", 6}});
  for (int i = 0; i < size.n_requests; ++i) {
    RequestTiming r{.line = i + 1, .custom_id = "request-" + std::to_string(i), .attempt = i % 10 < 7 ? 1 : 2};
    const double end_s = ends[r.attempt - 1];
    r.replica = static_cast<int32_t>(random() % n_replicas);
    r.n_prompt = static_cast<int32_t>(std::exp(3 + 5 * uniform(random) * uniform(random) + uniform(random)));
    r.n_generated = 1 + static_cast<int32_t>(500 * uniform(random) * uniform(random));
    const double first_s = 0.02 + 1e-4 * r.n_prompt * (0.7 + uniform(random)) + 0.3 * uniform(random) * uniform(random);
    const double decode_s = r.n_generated * 0.0065 * (0.8 + 0.5 * uniform(random));
    r.done_s = 22 + (end_s - 22) * static_cast<double>(i + 1) / size.n_requests;
    r.admitted_s = std::max(21.5, r.done_s - decode_s - first_s);
    r.first_token_s = std::min(r.done_s, r.admitted_s + first_s);
    r.finish_reason = i % 997 == 0 ? "error" : i % 3 == 0 ? "stop" : "length";
    all.requests.push_back(std::move(r));
  }
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: make_timings FILE [N_REQUESTS [N_RANKS [N_STEPS]]]\n");
    return 2;
  }
  Size size;
  int* fields[] = {&size.n_requests, &size.n_ranks, &size.n_steps};
  for (int i = 2; i < argc && i < 5; ++i) *fields[i - 2] = std::max(1, std::atoi(argv[i]));
  try {
    write_timings_h5(argv[1], make(size));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "make_timings: %s\n", e.what());
    return 1;
  }
}
