// Random work over many shapes of scheduler: the tokens that come out never depend on lag, budget, pages, slots or bursts.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "sched/describe.h"
#include "sched/fake_engine.h"

namespace lockstep {
namespace {

constexpr int64_t kMaxModelLen = 100;

// mt19937_64 is the same everywhere; distributions aren't.
int pick(std::mt19937_64& random, int least, int most) {
  return least + static_cast<int>(random() % static_cast<uint64_t>(most - least + 1));
}

std::vector<Request> make_requests(int n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Request> requests;
  for (int i = 0; i < n; ++i) {
    Request r;
    r.id = i + i / 7;  // some ids are skipped
    r.draw_key = random();
    const int kind = pick(random, 0, 9);
    const int n_prompt = kind == 0 ? pick(random, 60, 99) : kind < 4 ? pick(random, 14, 34) : pick(random, 1, 20);
    const int n_common = i % 3 == 0 ? 0 : pick(random, 0, 80), common = pick(random, 1, 2);  // two beginnings many share
    for (int t = 0; t < n_prompt; ++t) r.prompt.push_back(t < n_common ? common * t : pick(random, 0, 999));
    r.sampling.max_tokens = std::min(static_cast<int>(kMaxModelLen) - n_prompt, kind == 9 ? 1 : pick(random, 1, 84));
    requests.push_back(std::move(r));
  }
  return requests;
}

// Gives the requests in bursts of 0 .. burst a step, then runs until idle.
void work(FakeEngine& engine, const std::vector<Request>& requests, int burst, uint64_t seed) {
  std::mt19937_64 random(seed);
  size_t next = 0;
  for (int64_t k = 0; next < requests.size() || !engine.idle(); ++k) {
    ASSERT_LT(k, 400'000) << "livelock";
    std::vector<Request> admitted;
    for (int n = pick(random, 0, 3) == 0 ? pick(random, 0, burst) : 0; n > 0 && next < requests.size(); --n)
      admitted.push_back(requests[next++]);
    engine.step(std::move(admitted));
  }
}

struct Case {
  const char* name;
  SchedulerOptions options;
  int burst;
  bool preempts = false;  // must happen, or the case shows nothing
};

const Case kCases[] = {
    {"plain", {.n_pages = 200, .max_batch_tokens = 64, .max_sequences = 16, .max_model_len = kMaxModelLen}, 5},
    {"one at a time", {.n_pages = 7, .max_batch_tokens = 256, .max_sequences = 1, .max_model_len = kMaxModelLen}, 50},
    {"budget 1", {.n_pages = 40, .max_batch_tokens = 1, .max_sequences = 4, .max_model_len = kMaxModelLen}, 1},
    {"budget 7", {.n_pages = 11, .max_batch_tokens = 7, .max_sequences = 12, .max_model_len = kMaxModelLen}, 400, true},
    {"fewest pages", {.n_pages = 7, .max_batch_tokens = 33, .max_sequences = 8, .max_model_len = kMaxModelLen}, 10, true},
    {"lag 1", {.n_pages = 12, .max_batch_tokens = 48, .max_sequences = 8, .max_model_len = kMaxModelLen, .lag = 1}, 400, true},
    {"lag 1, fewest pages",
     {.n_pages = 7, .max_batch_tokens = 5, .max_sequences = 3, .max_model_len = kMaxModelLen, .lag = 1},
     3,
     true},
    {"lag 4", {.n_pages = 20, .max_batch_tokens = 64, .max_sequences = 16, .max_model_len = kMaxModelLen, .lag = 4}, 30, true},
    {"lag 4, one slot", {.n_pages = 9, .max_batch_tokens = 16, .max_sequences = 1, .max_model_len = kMaxModelLen, .lag = 4}, 3},
    {"2 stages",
     {.n_pages = 13,
      .max_batch_tokens = 64,
      .max_sequences = 9,
      .max_model_len = kMaxModelLen,
      .lag = 1,
      .resolve_references = false},
     9,
     true},
    {"4 stages",
     {.n_pages = 16,
      .max_batch_tokens = 64,
      .max_sequences = 32,
      .max_model_len = kMaxModelLen,
      .lag = 3,
      .resolve_references = false},
     400,
     true},
    {"4 stages, budget 1",
     {.n_pages = 9,
      .max_batch_tokens = 1,
      .max_sequences = 5,
      .max_model_len = kMaxModelLen,
      .lag = 3,
      .resolve_references = false},
     2},
    {"pipeline with lag 0",
     {.n_pages = 20, .max_batch_tokens = 20, .max_sequences = 6, .max_model_len = kMaxModelLen, .resolve_references = false},
     4},
};

using Streams = std::map<RequestId, std::vector<TokenId>>;

// What must come out: each request's own stream up to its end.
Streams streams_of(const std::vector<Request>& requests) {
  Streams streams;
  for (const Request& r : requests) {
    const std::vector<TokenId> history = oracle(r);
    std::vector<TokenId>& stream = streams[r.id];
    for (size_t i = r.prompt.size(); i < history.size() && (stream.empty() || !is_end(stream.back())); ++i)
      stream.push_back(history[i]);
  }
  return streams;
}

TEST(RandomWalk, TokensDependOnTheRequestAlone) {
  const std::vector<Request> requests = make_requests(400, 1);
  const Streams expected = streams_of(requests);
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    int64_t n_steps = 0;
    for (uint64_t seed = 2; n_steps < 3'000; ++seed) {
      SchedulerOptions options = c.options;
      options.prefix_cache = seed % 2 == 0;
      options.token_unit = seed % 3 == 0 ? 8 : 1;
      options.n_host_pages = seed % 4 < 2 ? 0 : seed % 4 == 2 ? 1000 : 5;
      FakeEngine run(options);
      work(run, requests, c.burst, seed);
      EXPECT_EQ(run.streams, expected);
      EXPECT_EQ(run.scheduler.n_pages_used(), 0);
      EXPECT_EQ(run.scheduler.n_host_pages_used(), 0);
      EXPECT_EQ(run.scheduler.n_cached() > 0, options.prefix_cache);
      if (c.preempts) {
        EXPECT_GT(run.scheduler.n_preempted(), 0);
        EXPECT_EQ(run.n_saved > 0, options.n_host_pages > 0);
      }
      n_steps += run.scheduler.next_step();
    }
  }
}

TEST(RandomWalk, AnyOptions) {
  const std::vector<Request> requests = make_requests(60, 6);
  const Streams expected = streams_of(requests);
  std::mt19937_64 random(7);
  int64_t n_preempted = 0, n_saved = 0, n_restored = 0;
  for (int i = 0; i < 200; ++i) {
    SchedulerOptions o{.max_model_len = kMaxModelLen};
    o.n_pages = pages_for(kMaxModelLen) + (pick(random, 0, 1) ? pick(random, 0, 5) : pick(random, 0, 60));
    o.max_batch_tokens = pick(random, 0, 1) ? pick(random, 1, 20) : pick(random, 1, 500);
    o.max_sequences = pick(random, 1, 20);
    o.lag = pick(random, 0, 5);
    o.resolve_references = pick(random, 0, 1) == 0;
    o.prefix_cache = pick(random, 0, 2) > 0;
    o.token_unit = pick(random, 0, 1) ? 1 : pick(random, 2, 40);
    o.n_host_pages = pick(random, 0, 2) ? pick(random, 1, 40) : 0;
    SCOPED_TRACE(concat("pages ", o.n_pages, ", budget ", o.max_batch_tokens, ", sequences ", o.max_sequences, ", lag ", o.lag,
                        o.resolve_references ? ", references" : ", pipeline", o.prefix_cache ? ", prefix cache" : "", ", unit ",
                        o.token_unit, ", host pages ", o.n_host_pages));
    FakeEngine engine(o);
    work(engine, requests, pick(random, 1, 60), random());
    EXPECT_EQ(engine.streams, expected);
    n_preempted += engine.scheduler.n_preempted();
    n_saved += engine.n_saved, n_restored += engine.n_restored;
  }
  EXPECT_GT(n_preempted, 200);
  EXPECT_GT(n_restored, 100);
  EXPECT_GT(n_saved, n_restored) << "some turn out finished, or find their pages still";
}

// With room for all on the host nothing is computed twice: the prompt, and each generated token but the last.
TEST(RandomWalk, WhatIsSavedIsNotComputedAgain) {
  const std::vector<Request> requests = make_requests(150, 10);
  int64_t n_once = 0;
  for (const auto& [id, stream] : streams_of(requests)) n_once += static_cast<int64_t>(stream.size()) - 1;
  for (const Request& r : requests) n_once += static_cast<int64_t>(r.prompt.size());
  for (const Case& c : kCases) {
    if (!c.preempts) continue;
    SCOPED_TRACE(c.name);
    for (const int64_t n_host_pages : {0, 1000}) {
      SchedulerOptions options = c.options;
      options.n_host_pages = n_host_pages;
      FakeEngine run(options);
      work(run, requests, c.burst, 11);
      const int64_t n_computed = std::accumulate(run.n_tokens.begin(), run.n_tokens.end(), int64_t{0});
      const int64_t n_too_many = run.n_sampled_in_vain;
      if (n_host_pages > 0) {
        EXPECT_EQ(n_computed - n_too_many, n_once);
      } else {
        EXPECT_GT(n_computed - n_too_many, n_once);
      }
    }
  }
}

// Without a prefix cache the scheduler knows exactly whether a chunk is its step's last. It leaves a part of a unit only where
// there was no whole one, nothing to cut, or nobody behind.
TEST(RandomWalk, StepsAreWholeUnitsWhilePromptsWait) {
  const std::vector<Request> requests = make_requests(150, 8);
  const Streams expected = streams_of(requests);
  for (const Case& c : kCases)
    for (const int64_t unit : {2, 7, 16, 32}) {
      SCOPED_TRACE(concat(c.name, ", unit ", unit));
      SchedulerOptions options = c.options;
      options.token_unit = unit;
      FakeEngine run(options);
      work(run, requests, c.burst, 9);
      EXPECT_EQ(run.streams, expected);
      int64_t n_whole = 0;
      for (size_t k = 0; k < run.n_tokens.size(); ++k) {
        const int64_t n_over = run.n_tokens[k] % unit;
        n_whole += n_over == 0 && run.n_last[k] > 1;
        if (run.n_waiting[k] > 0 && run.n_tokens[k] > unit) {
          EXPECT_TRUE(n_over == 0 || run.n_last[k] <= n_over) << "step " << k << ": " << run.n_tokens[k] << " tokens";
        }
      }
      if (options.max_batch_tokens >= 2 * unit) {
        EXPECT_GT(n_whole, 10);
      }
    }
}

TEST(RandomWalk, TwoReplicasStayEqual) {
  const std::vector<Request> requests = make_requests(150, 3);
  std::vector<Request> other_requests = requests;
  other_requests[75].draw_key ^= 1;
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    SchedulerOptions options = c.options;
    options.prefix_cache = true;
    options.token_unit = 4;
    FakeEngine a(options), b(options), other(options);
    work(a, requests, c.burst, 4);
    work(b, requests, c.burst, 4);
    EXPECT_EQ(a.hashes, b.hashes);
    work(other, other_requests, c.burst, 4);
    EXPECT_TRUE(a.hashes != other.hashes) << "the hash doesn't see another draw key";
  }
}

TEST(RandomWalk, TheHashSeesEveryField) {
  StepBatch b{.step = 1,
              .token_ids = {1},
              .positions = {0},
              .q_offsets = {0, 1},
              .kv_lengths = {1},
              .page_offsets = {0, 1},
              .pages = {0},
              .samples = {SampleRow{}}};
  std::set<uint64_t> hashes = {hash_of(b)};
  EXPECT_EQ(hash_of(b), *hashes.begin());
  size_t n = 1;
  const auto changed = [&](auto change) {
    StepBatch other = b;
    change(other);
    hashes.insert(hash_of(other));
    EXPECT_EQ(hashes.size(), ++n);
  };
  changed([](StepBatch& o) { o.step = 2; });
  changed([](StepBatch& o) { o.token_ids[0] = 2; });
  changed([](StepBatch& o) { o.positions[0] = 2; });
  changed([](StepBatch& o) { o.q_offsets[1] = 2; });
  changed([](StepBatch& o) { o.kv_lengths[0] = 2; });
  changed([](StepBatch& o) { o.page_offsets[1] = 2; });
  changed([](StepBatch& o) { o.pages[0] = 2; });
  changed([](StepBatch& o) { o.cached.push_back({1, 16}); });
  changed([](StepBatch& o) { o.saved.push_back({0, 1}); });
  changed([](StepBatch& o) { o.saved.push_back({1, 0}); });
  changed([](StepBatch& o) { o.restored.push_back({0, 1}); });
  changed([](StepBatch& o) { o.samples.clear(); });
  changed([](StepBatch& o) { o.samples[0].row = 2; });
  changed([](StepBatch& o) { o.samples[0].slot = 2; });
  changed([](StepBatch& o) { o.samples[0].request = 2; });
  changed([](StepBatch& o) { o.samples[0].draw_key = 2; });
  changed([](StepBatch& o) { o.samples[0].position = 2; });
  changed([](StepBatch& o) { o.samples[0].temperature = 2; });
  changed([](StepBatch& o) { o.samples[0].top_p = 2; });
  changed([](StepBatch& o) { o.samples[0].top_k = 2; });
  changed([](StepBatch& o) { o.samples[0].min_p = 2; });
  changed([](StepBatch& o) { o.samples[0].n_logprobs = 2; });
}

// Four stages, 64 sequences that decode for long: 16 in each micro-batch, whatever the bursts were.
TEST(RandomWalk, MicroBatchesHaveEqualSize) {
  SchedulerOptions o{.n_pages = 1000,
                     .max_batch_tokens = 64,
                     .max_sequences = 64,
                     .max_model_len = 2000,
                     .lag = 3,
                     .resolve_references = false};
  Scheduler s(o);
  std::vector<Request> requests;
  for (int i = 0; i < 64; ++i) requests.push_back(request(i, 1 + i % 29, 1000));
  std::deque<StepEvents> uncommitted;
  std::vector<int64_t> sizes;
  for (int64_t k = 0; k < 200; ++k) {
    if (k > o.lag) {
      s.commit(uncommitted.front());
      uncommitted.pop_front();
    }
    const StepBatch batch = s.schedule();
    sizes.push_back(batch.n_seqs());
    StepEvents e;
    e.step = k;
    for (const SampleRow& row : batch.samples) e.sampled.push_back({row.request, 1, false});
    if (k % 3 == 0)
      for (int n = 0; n < 11 && !requests.empty(); ++n) {
        e.admitted.push_back(requests.front());
        requests.erase(requests.begin());
      }
    uncommitted.push_back(std::move(e));
  }
  for (size_t k = 150; k < sizes.size(); ++k) EXPECT_EQ(sizes[k], 16) << "step " << k;
}

}  // namespace
}  // namespace lockstep
