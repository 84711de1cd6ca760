// One replica without a model: runs a Scheduler with its lag, and "computes" each StepBatch from the batch alone. Its KV
// is the tokens themselves, by page; its sampler hashes the draw key, the position and all tokens that the pages hold.
// So a stream of tokens is right only if every page, position, reference and sample row was right; the true stream of a
// request (`oracle`) needs no scheduler at all.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "sched/scheduler.h"

namespace lockstep {

inline uint64_t mixed(uint64_t h, uint64_t value) {
  h = (h ^ value) * 0x9E3779B97F4A7C15u;
  return h ^ (h >> 29);
}

inline TokenId fake_sample(uint64_t draw_key, int32_t position, const std::vector<TokenId>& history) {
  uint64_t h = mixed(draw_key, static_cast<uint64_t>(position));
  for (const TokenId token : history) h = mixed(h, static_cast<uint64_t>(token));
  return static_cast<TokenId>((h >> 20) % 1000);
}

constexpr bool is_end(TokenId token) { return token % 64 == 3; }  // one token in 64

// The whole history of a request: prompt and max_tokens tokens, as if nothing ended it.
inline std::vector<TokenId> oracle(const Request& r) {
  std::vector<TokenId> history = r.prompt;
  for (int32_t i = 0; i < r.sampling.max_tokens; ++i) history.push_back(fake_sample(r.draw_key, i, history));
  return history;
}

class FakeEngine {
 public:
  explicit FakeEngine(const SchedulerOptions& options)
      : scheduler(options),
        kv_(static_cast<size_t>(options.n_pages) * kPageSize),
        host_kv_(static_cast<size_t>(options.n_host_pages) * kPageSize) {}

  // Step k: commit k - 1 - lag, schedule, run. `admitted` become events of step k.
  void step(std::vector<Request> admitted) {
    const auto lag = static_cast<size_t>(scheduler.options().lag);
    if (uncommitted_.size() > lag) {
      scheduler.commit(uncommitted_.front());
      scheduler.check_integrity();
      uncommitted_.pop_front();
      slots_.pop_front();
    }
    const StepBatch batch = scheduler.schedule();
    scheduler.check_integrity();
    hashes.push_back(hash_of(batch));
    n_tokens.push_back(batch.n_tokens());
    n_seqs.push_back(batch.n_seqs());
    n_last.push_back(batch.n_seqs() > 0 ? batch.n_tokens() - *(batch.q_offsets.end() - 2) : 0);
    n_waiting.push_back(scheduler.n_waiting());
    n_saved += static_cast<int64_t>(batch.saved.size());
    n_restored += static_cast<int64_t>(batch.restored.size());
    for (const Request& r : admitted) {
      histories_[r.id] = oracle(r);
      requests_[r.id] = r;
    }
    StepEvents events = run(batch);
    events.admitted = std::move(admitted);
    uncommitted_.push_back(std::move(events));
  }

  bool idle() const {
    for (const StepEvents& e : uncommitted_)
      if (!e.admitted.empty()) return false;
    return scheduler.idle();
  }

  Scheduler scheduler;
  std::map<RequestId, std::vector<TokenId>> streams;  // what came out
  std::vector<uint64_t> hashes;                       // of each step's batch
  std::vector<int64_t> n_tokens, n_seqs;              // of each step
  std::vector<int64_t> n_last, n_waiting;             // tokens of its last sequence; how many wait behind it
  int64_t n_saved = 0, n_restored = 0;                // pages, to and from the host
  int64_t n_sampled_in_vain = 0;                      // after the end of a stream, which wasn't known yet

 private:
  struct Cell {
    TokenId token = -1;
    int32_t position = -1;
  };

  // What comes back from the host is gone there.
  void copy_pages(const StepBatch& b) {
    const auto page_at = [](std::vector<Cell>& cells, PageId page) {
      check(page >= 0 && static_cast<size_t>(page) < cells.size() / kPageSize, "page ", page);
      return cells.begin() + static_cast<std::ptrdiff_t>(page) * kPageSize;
    };
    for (const PageCopy& c : b.saved) std::copy_n(page_at(kv_, c.page), kPageSize, page_at(host_kv_, c.host_page));
    for (const PageCopy& c : b.restored) {
      std::copy_n(page_at(host_kv_, c.host_page), kPageSize, page_at(kv_, c.page));
      std::fill_n(page_at(host_kv_, c.host_page), kPageSize, Cell{});
    }
  }

  StepEvents run(const StepBatch& b) {
    const SchedulerOptions& o = scheduler.options();
    check(b.step == next_step_++, "step ", b.step);
    check(b.n_tokens() <= o.max_batch_tokens && b.n_seqs() <= o.max_sequences, "a batch too large");
    check(b.positions.size() == b.token_ids.size() && b.q_offsets.size() == b.kv_lengths.size() + 1 &&
              b.page_offsets.size() == b.kv_lengths.size() + 1 && b.q_offsets.front() == 0 && b.page_offsets.front() == 0 &&
              b.q_offsets.back() == b.n_tokens() && b.page_offsets.back() == static_cast<int32_t>(b.pages.size()),
          "array lengths");
    StepEvents events;
    events.step = b.step;
    copy_pages(b);
    std::map<int32_t, RequestId> slots;
    std::set<PageId> written;
    std::vector<std::pair<int32_t, TokenId>> writes;  // to the sample buffer, after all was read
    size_t sample = 0;
    for (size_t i = 0; i < b.kv_lengths.size(); ++i) {
      const int32_t begin = b.q_offsets[i], end = b.q_offsets[i + 1], kv_length = b.kv_lengths[i];
      check(begin < end, "a sequence without new tokens");
      check(b.page_offsets[i + 1] - b.page_offsets[i] == pages_for(kv_length), "page count");
      for (int32_t p = (kv_length - (end - begin)) / kPageSize; p < pages_for(kv_length); ++p)
        check(written.insert(b.pages[static_cast<size_t>(b.page_offsets[i] + p)]).second, "a page written by two sequences");
      const auto cell = [&](int32_t position) -> Cell& {
        const PageId page = b.pages[static_cast<size_t>(b.page_offsets[i] + position / kPageSize)];
        return kv_.at(static_cast<size_t>(page) * kPageSize + static_cast<size_t>(position % kPageSize));
      };
      for (int32_t t = begin; t < end; ++t) {
        const int32_t position = b.positions[static_cast<size_t>(t)];
        check(position == kv_length - (end - t), "position ", position);
        const TokenId token = b.token_ids[static_cast<size_t>(t)];
        check(o.resolve_references || !is_reference(token), "a reference in a pipeline");
        cell(position) = {is_reference(token) ? sample_buffer_.at(slot_of(token)) : token, position};
      }
      if (sample == b.samples.size() || b.samples[sample].row != end - 1) continue;
      const SampleRow& row = b.samples[sample++];
      const std::vector<TokenId>& truth = histories_.at(row.request);
      std::vector<TokenId> history;
      for (int32_t p = 0; p < kv_length; ++p) {
        check(cell(p).position == p && cell(p).token == truth.at(static_cast<size_t>(p)), "request ", row.request,
              ": KV of token ", p);
        history.push_back(cell(p).token);
      }
      check(row.slot >= 0 && row.slot < o.max_sequences && slots.emplace(row.slot, row.request).second, "slot ", row.slot);
      for (const auto& in_flight : slots_) {
        const auto other = in_flight.find(row.slot);
        check(other == in_flight.end() || other->second == row.request, "slot ", row.slot, " may still be written");
      }
      const TokenId token = fake_sample(row.draw_key, row.position, history);
      writes.emplace_back(row.slot, token);
      if (done_.contains(row.request)) {
        ++n_sampled_in_vain;
        continue;
      }
      std::vector<TokenId>& stream = streams[row.request];
      check(row.position == static_cast<int32_t>(stream.size()), "request ", row.request, " samples position ", row.position);
      stream.push_back(token);
      const bool finished =
          is_end(token) || static_cast<int32_t>(stream.size()) == requests_.at(row.request).sampling.max_tokens;
      if (finished) done_.insert(row.request);
      events.sampled.push_back({row.request, token, finished});
    }
    check(sample == b.samples.size(), "a sample row that ends no sequence");
    for (const auto& [slot, token] : writes) sample_buffer_[slot] = token;
    slots_.push_back(std::move(slots));
    return events;
  }

  std::vector<Cell> kv_;       // [n_pages * kPageSize]
  std::vector<Cell> host_kv_;  // [n_host_pages * kPageSize]
  std::map<int32_t, TokenId> sample_buffer_;
  std::map<RequestId, std::vector<TokenId>> histories_;
  std::map<RequestId, Request> requests_;
  std::set<RequestId> done_;
  std::deque<StepEvents> uncommitted_;
  std::deque<std::map<int32_t, RequestId>> slots_;  // written by each step in flight
  int64_t next_step_ = 0;
};

}  // namespace lockstep
