// What holds between two calls of a Scheduler, said as checks.
#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "sched/scheduler.h"

namespace lockstep {

void Scheduler::check_integrity() const {
  pool_.check_integrity();
  host_pool_.check_integrity();

  // Each sequence by itself; whose pages and slots they are.
  std::map<PageId, int64_t> n_refs;
  std::set<PageId> saved;
  std::set<int32_t> slots(free_slots_.begin(), free_slots_.end());
  size_t n_slots = free_slots_.size();
  for (const auto& [id, s] : sequences_) {
    check(id == s.id && !s.finished, "request ", id, " is a finished one, or another");
    check(s.n_prompt >= 1 && s.max_tokens >= 1 && s.n_prompt + s.max_tokens <= options_.max_model_len, "request ", id, ": ",
          s.n_prompt, " + ", s.max_tokens, " tokens of ", options_.max_model_len);
    check(s.n_known() >= s.n_prompt && s.n_known() <= s.length(), "request ", id, ": ", s.n_known(), " tokens known of ",
          s.length());
    check(s.n_sampled <= s.max_tokens, "request ", id, ": ", s.n_sampled, " samples of ", s.max_tokens);
    check(s.n_computed >= 0 && s.n_left() >= 1 && s.n_computed <= s.n_prompt + s.max_tokens - 1, "request ", id, ": ",
          s.n_computed, " of ", s.length(), " tokens computed");
    check(s.is_committed() == (s.last_sample_step < first_in_flight()), "request ", id, " sampled in step ", s.last_sample_step,
          ", commits stand before ", first_in_flight());
    const int64_t n_pages = s.is_complete() || s.slot < 0 ? 0 : pages_for(s.n_computed);
    check(static_cast<int64_t>(s.pages.size()) == n_pages, "request ", id, " holds ", s.pages.size(), " pages, not ", n_pages);
    for (const PageRef& page : s.pages) ++n_refs[page.id()];
    check(static_cast<int64_t>(s.saved.size()) == (s.slot < 0 ? pages_for(s.n_computed) : 0), "request ", id, " has saved ",
          s.saved.size(), " pages of ", s.n_computed, " tokens");
    for (const PageRef& page : s.saved) check(saved.insert(page.id()).second, "host page ", page.id(), " is two sequences'");
    check(s.n_kept <= std::min(s.n_computed, s.n_known()) / kPageSize && (n_pages > 0 || s.n_kept == 0), "request ", id, ": ",
          s.n_kept, " pages kept of ", n_pages);
    if (s.slot >= 0) slots.insert(s.slot), ++n_slots;
  }

  // Pages: used exactly by those who hold them.
  check(static_cast<int64_t>(n_refs.size()) == pool_.n_used(), pool_.n_used(), " pages used, ", n_refs.size(), " held");
  for (const auto& [page, n] : n_refs)
    check(pool_.n_refs(page) == n, "page ", page, ": ", pool_.n_refs(page), " references, ", n, " held");

  check(static_cast<int64_t>(saved.size()) == host_pool_.n_used(), host_pool_.n_used(), " host pages used, ", saved.size(),
        " held");

  // Slots: each is free, held by one sequence, or held back by one step.
  for (const InFlight& step : in_flight_) slots.insert(step.slots.begin(), step.slots.end()), n_slots += step.slots.size();
  check(n_slots == slots.size() && static_cast<int64_t>(n_slots) == options_.max_sequences, n_slots, " slots, ", slots.size(),
        " different ones, of ", options_.max_sequences);
  check(slots.empty() || (*slots.begin() == 0 && *slots.rbegin() == options_.max_sequences - 1), "a slot out of range");

  // Queues: by id, running before waiting; a prefill only at the end of running.
  RequestId last = -1;
  for (const Sequence* s : running_) {
    check(s->id > last, "running request ", s->id, " after ", last);
    last = s->id;
    check(s->slot >= 0 && s->n_computed > 0 && !s->is_complete(), "request ", s->id, " runs without slot, KV or need");
    check(s->is_decoding() || s == running_.back(), "request ", s->id, " is in prefill, and not the youngest");
  }
  for (const Sequence* s : waiting_) {
    check(s->id > last, "waiting request ", s->id, " after ", last);
    last = s->id;
    check(s->slot < 0, "request ", s->id, " waits with a slot");
  }
  check(last <= last_admitted_, "request ", last, " wasn't admitted");
  size_t n_ending = 0;  // last sample scheduled, not committed
  for (const auto& [id, s] : sequences_) n_ending += s.is_complete();
  check(n_ending + running_.size() + waiting_.size() == sequences_.size(), "a sequence is in no queue, or in two");

  check(static_cast<int64_t>(in_flight_.size()) <= options_.lag + 1, in_flight_.size(), " steps in flight, lag ", options_.lag);
}

}  // namespace lockstep
