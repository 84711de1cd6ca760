#include "sched/scheduler.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "base/error.h"

namespace lockstep {

namespace {

SchedulerOptions checked(const SchedulerOptions& o) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();  // batches hold 32-bit offsets
  const auto in_range = [kMost](int64_t value, int64_t least, const char* name) {
    if (value < least || value > kMost) fail(ExitCode::usage, name, " is ", value, ", expected ", least, " to ", kMost);
  };
  in_range(o.max_batch_tokens, 1, "max_batch_tokens");
  in_range(o.max_sequences, 1, "max_sequences");
  in_range(o.max_model_len, 1, "max_model_len");
  in_range(o.n_pages, 0, "n_pages");
  in_range(o.n_host_pages, 0, "n_host_pages");
  in_range(o.lag, 0, "lag");
  in_range(o.token_unit, 1, "token_unit");
  if (o.n_pages < pages_for(o.max_model_len))
    fail(ExitCode::usage, "the KV pool holds ", o.n_pages, " pages (", o.n_pages * kPageSize, " tokens), one sequence of ",
         o.max_model_len, " tokens needs ", pages_for(o.max_model_len));
  return o;
}

int64_t count_growing(std::span<Sequence* const> sequences) {
  return std::count_if(sequences.begin(), sequences.end(), [](const Sequence* s) { return s->may_grow(); });
}

constexpr int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options)
    : options_(checked(options)), pool_(options.n_pages), host_pool_(options.n_host_pages), cache_(pool_) {
  for (auto slot = static_cast<int32_t>(options.max_sequences); slot-- > 0;) free_slots_.push_back(slot);  // slot 0 first
}

bool Scheduler::idle() const {
  return sequences_.empty() && std::all_of(in_flight_.begin(), in_flight_.end(), [](const InFlight& f) { return f.empty; });
}

// ---- commit ----

void Scheduler::commit(const StepEvents& events) {
  check(!in_flight_.empty() && events.step == first_in_flight(), "events of step ", events.step, ", but steps ",
        first_in_flight(), " to ", next_step_ - 1, " are in flight");
  const InFlight step = std::move(in_flight_.front());
  in_flight_.pop_front();

  auto next = events.sampled.begin();
  std::vector<Sequence*> finished;
  for (const RequestId id : step.sampled) {
    const auto found = sequences_.find(id);
    if (found == sequences_.end()) continue;  // finished by an earlier step: one token too many
    check(next != events.sampled.end() && next->request == id, "step ", events.step, " sampled for request ", id,
          ", its events don't have that token next");
    check(next->token >= 0 || next->finished, "request ", id, ": sampled token ", next->token);
    Sequence& s = found->second;
    s.tokens.push_back(next->token);
    s.finished = next->finished;
    check(s.finished || s.n_known() < s.n_prompt + s.max_tokens, "request ", id, " has all of its ", s.max_tokens,
          " tokens and isn't finished");
    if (s.finished) finished.push_back(&s);
    ++next;
  }
  check(next == events.sampled.end(), "events of step ", events.step, " have a token which that step didn't sample");
  for (const RequestId id : step.scored) {
    Sequence& s = sequences_.at(id);
    s.finished = true;
    finished.push_back(&s);
  }
  leave(finished);
  free_slots_.insert(free_slots_.end(), step.slots.begin(), step.slots.end());
  for (const Request& request : events.admitted) admit(request);
}

void Scheduler::admit(const Request& request) {
  check(request.id > last_admitted_, "request ", request.id, " admitted after ", last_admitted_);
  const int64_t n_prompt = static_cast<int64_t>(request.prompt.size()), max_tokens = request.sampling.max_tokens;
  check(n_prompt >= 1 && max_tokens >= 0 && n_prompt <= options_.max_model_len - max_tokens, "request ", request.id, ": ",
        n_prompt, " prompt tokens and ", max_tokens, " to generate, max_model_len ", options_.max_model_len);
  check(max_tokens >= 1 || (request.sampling.prompt_logprobs && n_prompt >= 2), "request ", request.id, ": nothing to compute");
  check(std::all_of(request.prompt.begin(), request.prompt.end(), [](TokenId t) { return t >= 0; }), "request ", request.id,
        ": a negative token in the prompt");
  last_admitted_ = request.id;
  waiting_.push_back(&sequences_.try_emplace(request.id, request).first->second);
}

void Scheduler::leave(const std::vector<Sequence*>& finished) {
  if (finished.empty()) return;
  std::erase_if(running_, [](const Sequence* s) { return s->finished; });
  for (Sequence* s : finished) {
    if (s->slot >= 0)
      free_slot(*s);
    else  // preempted meanwhile: near the front
      waiting_.erase(std::find(waiting_.begin(), waiting_.end(), s));
    s->drop_pages();
    sequences_.erase(s->id);
  }
}

// A step in flight may still write the slot; then it is held until that step is committed.
void Scheduler::free_slot(Sequence& s) {
  const int64_t first = first_in_flight();
  if (s.last_sample_step >= first)
    in_flight_[static_cast<size_t>(s.last_sample_step - first)].slots.push_back(s.slot);
  else
    free_slots_.push_back(s.slot);
  s.slot = -1;
}

// ---- schedule ----

StepBatch Scheduler::schedule() {
  const int64_t n_in_flight = static_cast<int64_t>(in_flight_.size());
  check(n_in_flight == std::min<int64_t>(next_step_, options_.lag), "step ", next_step_, " scheduled with ", n_in_flight,
        " steps in flight, lag ", options_.lag);
  BatchBuilder batch(next_step_);
  in_flight_.emplace_back();
  ++next_step_;

  schedule_decodes(batch);
  if (schedule_prefill(batch)) schedule_admissions(batch);

  in_flight_.back().empty = batch.n_tokens() == 0;
  retire_complete();
  return batch.take();
}

// The share of one step where sequences that wait for their token take turns: their micro-batches have about equal size.
int64_t Scheduler::micro_batch(int64_t n_sequences) const {
  return options_.resolve_references ? n_sequences : ceil_div(n_sequences, int64_t{options_.lag} + 1);
}

void Scheduler::schedule_decodes(BatchBuilder& batch) {
  const int64_t most = std::min(options_.max_batch_tokens, micro_batch(static_cast<int64_t>(running_.size())));
  for (size_t i = 0; i < running_.size() && batch.n_seqs() < most; ++i) {
    Sequence& s = *running_[i];
    if (!s.is_decoding() || !(options_.resolve_references || s.is_committed())) continue;
    if (s.n_computed % kPageSize == 0) {
      while (pool_.n_free() == 0 && i + 1 < running_.size()) preempt_youngest(batch);
      if (pool_.n_free() == 0) break;  // the youngest itself: it waits for a page, or until an older one takes its pages
    }
    add(batch, s, 1);
  }
}

bool Scheduler::has_room(int64_t n_tokens, int64_t n_seqs) const {
  const int64_t n_live = std::min(options_.max_sequences, static_cast<int64_t>(sequences_.size()));
  return n_tokens < options_.max_batch_tokens && n_seqs < micro_batch(n_live);
}

// The next chunk of the youngest running sequence, if it is in prefill. Whether admissions may follow.
bool Scheduler::schedule_prefill(BatchBuilder& batch) {
  if (running_.empty() || running_.back()->is_decoding()) return true;
  if (!has_room(batch.n_tokens(), batch.n_seqs())) return false;
  return add_chunk(batch, *running_.back(), count_growing({running_.data(), running_.size() - 1}));
}

// As much as budget and free pages allow; if the batch ends with it and more waits, without the part of a token unit at its
// end. At least a token stays, so that it always moves on. Whether `s` has got all it needs. n_reserved: pages for the growth
// of those before it.
bool Scheduler::add_chunk(BatchBuilder& batch, Sequence& s, int64_t n_reserved) {
  const int64_t n_held = static_cast<int64_t>(s.pages.size()) + pool_.n_free(), n_left = s.n_left();
  int64_t n_new = std::min({n_left, options_.max_batch_tokens - batch.n_tokens(), n_held * kPageSize - s.n_computed});
  const int64_t n_over = (batch.n_tokens() + n_new) % options_.token_unit;
  const bool more_waits = n_new < n_left || !waiting_.empty();
  if (n_over > 0 && n_over < n_new && more_waits && !another_follows(batch, s, n_new, n_reserved)) n_new -= n_over;
  if (n_new > 0) add(batch, s, n_new);
  return n_new == n_left;
}

// Whether the next admission fits into the batch behind n_new tokens of `s`. Where it would do so only by pages that `s` is
// about to fill, the answer may be a wrong yes; no decision but where to end a chunk rests on it.
bool Scheduler::another_follows(const BatchBuilder& batch, const Sequence& s, int64_t n_new, int64_t n_reserved) const {
  if (n_new < s.n_left() || waiting_.empty() || free_slots_.empty()) return false;
  const Sequence& next = *waiting_.front();
  if (!has_room(batch.n_tokens() + n_new, batch.n_seqs() + 1) || !next.is_committed()) return false;
  const int64_t n_computed = s.n_computed + n_new, n_pages = pages_for(n_computed);
  const int64_t n_free = pool_.n_free() - (n_pages - static_cast<int64_t>(s.pages.size()));
  const int64_t n_missing = pages_for(next.length()) + n_reserved + s.may_grow(n_pages) - n_free;
  if (n_missing <= 0) return true;
  const PrefixCache::Found prefix = find_prefix(next);
  if (n_missing <= n_in_use(prefix)) return true;
  const int64_t n_alike = (static_cast<int64_t>(prefix.pages.size()) + 1) * kPageSize;
  return options_.prefix_cache && n_alike <= std::min(n_computed, next.n_known()) &&
         std::equal(s.tokens.begin(), s.tokens.begin() + n_alike, next.tokens.begin());
}

// Of these pages: those that sequences hold, so that nothing has to be free for them.
int64_t Scheduler::n_in_use(const PrefixCache::Found& prefix) const {
  return std::count_if(prefix.pages.begin(), prefix.pages.end(), [&](PageId p) { return pool_.n_refs(p) > 0; });
}

// In order of ids. A preempted sequence waits for its tokens, and those behind it wait for it. A prefill must fit beside one
// more page for each running sequence that may grow, so that it isn't thrown out again a few steps later. A prefill that isn't
// complete ends the batch, so that one sequence at most is in prefill.
void Scheduler::schedule_admissions(BatchBuilder& batch) {
  const auto may_follow = [&] {
    return !waiting_.empty() && !free_slots_.empty() && has_room(batch.n_tokens(), batch.n_seqs());
  };
  if (!may_follow()) return;
  int64_t n_reserved = count_growing(running_);
  while (may_follow()) {
    Sequence& s = *waiting_.front();
    if (!s.is_committed()) return;
    const PrefixCache::Found prefix = find_prefix(s);
    if (pages_for(s.length()) - n_in_use(prefix) + n_reserved > pool_.n_free()) return;
    waiting_.pop_front();
    take_pages(batch, s, prefix);
    s.slot = free_slots_.back();
    s.begun_in_slot = false;
    free_slots_.pop_back();
    running_.push_back(&s);
    if (!add_chunk(batch, s, n_reserved)) return;
    n_reserved += s.may_grow();
  }
}

// The pages found, and behind them those that were saved. A full page that comes back may be found again, as any other.
void Scheduler::take_pages(BatchBuilder& batch, Sequence& s, const PrefixCache::Found& prefix) {
  for (const PageId page : prefix.pages) s.pages.push_back(pool_.take_kept(page));
  s.n_kept = static_cast<int64_t>(prefix.pages.size());
  s.chain = prefix.chain;
  const int64_t n_found = s.n_kept * kPageSize;
  if (s.saved.empty() && n_found > 0) batch.add_cached({s.id, static_cast<int32_t>(n_found)}), n_cached_ += n_found;
  for (size_t i = s.pages.size(); i < s.saved.size(); ++i) {
    s.pages.push_back(pool_.allocate());
    batch.add_restored({s.pages[i].id(), s.saved[i].id()});
  }
  s.saved.clear();
  s.n_computed = std::max(s.n_computed, n_found);
}

// Of the known tokens all but the last, which is computed for its logits; of a prompt that is scored, those scored already.
PrefixCache::Found Scheduler::find_prefix(const Sequence& s) const {
  if (!options_.prefix_cache) return {};
  const int64_t most = s.scored && s.n_scored < s.n_prompt - 1 ? s.n_scored : s.n_known() - 1;
  return cache_.find(s.tokens, most / kPageSize);
}

// A page may be found from the moment that it is scheduled: steps run in order, and within a step each layer writes the keys
// and values of all sequences before it reads any.
void Scheduler::keep_full_pages(Sequence& s) {
  if (!options_.prefix_cache) return;
  for (const int64_t n_full = std::min(s.n_computed, s.n_known()) / kPageSize; s.n_kept < n_full; ++s.n_kept) {
    const auto i = static_cast<size_t>(s.n_kept);
    s.chain = cache_.keep(s.chain, std::span(s.tokens).subspan(i * kPageSize, kPageSize), s.pages[i].id());
  }
}

void Scheduler::add(BatchBuilder& batch, Sequence& s, int64_t n_new) {
  while (static_cast<int64_t>(s.pages.size()) < pages_for(s.n_computed + n_new)) s.pages.push_back(pool_.allocate());
  batch.add(s, n_new);
  s.n_computed += n_new;
  keep_full_pages(s);
  if (s.n_left() > 0) return;
  if (s.only_scores()) return in_flight_.back().scored.push_back(s.id);
  in_flight_.back().sampled.push_back(s.id);
  s.last_sample_step = next_step_ - 1;
  ++s.n_sampled;
}

// A sequence whose last sample is scheduled keeps its slot until that is committed. Its pages may go at once: whoever gets
// them writes them in a later step.
void Scheduler::retire_complete() {
  for (Sequence* s : running_)
    if (s->is_complete()) s->drop_pages();
  std::erase_if(running_, [](const Sequence* s) { return s->is_complete(); });
}

// Its pages hold what earlier steps computed, since it isn't part of this one yet.
void Scheduler::preempt_youngest(BatchBuilder& batch) {
  Sequence& s = *running_.back();
  running_.pop_back();
  free_slot(s);
  if (static_cast<int64_t>(s.pages.size()) <= host_pool_.n_free())
    for (const PageRef& page : s.pages) {
      s.saved.push_back(host_pool_.allocate());
      batch.add_saved({page.id(), s.saved.back().id()});
    }
  else
    s.n_computed = 0;
  s.drop_pages();
  waiting_.push_front(&s);
  ++n_preempted_;
}

}  // namespace lockstep
