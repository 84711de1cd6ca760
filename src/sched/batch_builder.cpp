#include "sched/batch_builder.h"

#include <algorithm>
#include <string_view>

#include "base/bytes.h"
#include "base/error.h"
#include "base/hash.h"

namespace lockstep {

BatchBuilder::BatchBuilder(int64_t step) {
  batch_.step = step;
  batch_.q_offsets = {0};
  batch_.page_offsets = {0};
}

void BatchBuilder::add(Sequence& s, int64_t n_new) {
  const int64_t begin = s.n_computed, end = s.n_computed + n_new;
  const int64_t n_pages = pages_for(end);
  check(n_new > 0 && end <= s.length(), "request ", s.id, ": ", n_new, " new tokens after ", begin, " of ", s.length());
  check(n_pages <= static_cast<int64_t>(s.pages.size()), "request ", s.id, ": ", s.pages.size(), " pages for ", end, " tokens");
  // The sample buffer holds the last sample of a slot only.
  check(end <= s.n_known() || (end == s.length() && n_new == 1), "request ", s.id, ": an unknown token inside its history");

  if (s.scored) add_scores(s, begin, end);
  for (int64_t i = begin; i < end; ++i) {
    batch_.token_ids.push_back(i < s.n_known() ? s.tokens[static_cast<size_t>(i)] : sampled_in(s.slot));
    batch_.positions.push_back(static_cast<int32_t>(i));
  }
  for (int64_t i = 0; i < n_pages; ++i) batch_.pages.push_back(s.pages[static_cast<size_t>(i)].id());
  batch_.q_offsets.push_back(static_cast<int32_t>(batch_.token_ids.size()));
  batch_.kv_lengths.push_back(static_cast<int32_t>(end));
  batch_.page_offsets.push_back(static_cast<int32_t>(batch_.pages.size()));
  if (end == s.length() && !s.only_scores()) {
    if (s.adjusted && !s.begun_in_slot) add_adjustments(s);
    s.begun_in_slot = true;
    SampleRow& row = batch_.samples.emplace_back(s.sampling);
    row.row = batch_.q_offsets.back() - 1;
    row.slot = s.slot;
    row.position = static_cast<int32_t>(s.n_sampled);
  }
}

// Each prompt token but the first is scored by the row of the one before it; once, also when it is computed again.
void BatchBuilder::add_scores(Sequence& s, int64_t begin, int64_t end) {
  for (int64_t i = std::max(begin, s.n_scored); i < std::min(end, s.n_prompt - 1); ++i, ++s.n_scored)
    batch_.scores.push_back({.row = static_cast<int32_t>(n_tokens() + i - begin),
                             .request = s.id,
                             .position = static_cast<int32_t>(i + 1),
                             .target = s.tokens[static_cast<size_t>(i + 1)],
                             .n_logprobs = std::max(s.sampling.n_logprobs, 0)});
}

// A sequence begins in a slot with all of its tokens known: a new one, or one whose samples were committed before it came back.
void BatchBuilder::add_adjustments(const Sequence& s) {
  LogitAdjustments& a = batch_.adjustments.emplace_back(s.adjustments);
  a.slot = s.slot;
  const auto completion = s.tokens.begin() + s.n_prompt;
  if (a.repetition_penalty != 1) a.prompt.assign(s.tokens.begin(), completion);
  if (a.repetition_penalty != 1 || a.presence_penalty != 0 || a.frequency_penalty != 0)
    a.completion.assign(completion, s.tokens.end());
}

uint64_t hash_of(const StepBatch& b) {
  ByteWriter w;
  w.put(b.step);
  w.put_vector(b.token_ids);
  w.put_vector(b.positions);
  w.put_vector(b.q_offsets);
  w.put_vector(b.kv_lengths);
  w.put_vector(b.page_offsets);
  w.put_vector(b.pages);
  for (const SampleRow& s : b.samples) {  // field by field: padding has no value
    w.put(s.row), w.put(s.slot), w.put(s.request), w.put(s.draw_key), w.put(s.position), w.put(s.temperature);
    w.put(s.top_p), w.put(s.top_k), w.put(s.min_p), w.put(s.n_logprobs), w.put(s.adjusted);
  }
  for (const ScoreRow& s : b.scores) w.put(s.row), w.put(s.request), w.put(s.position), w.put(s.target), w.put(s.n_logprobs);
  for (const CachedPrefix& c : b.cached) w.put(c.request), w.put(c.n_tokens);
  w.put_vector(b.saved);
  w.put_vector(b.restored);
  for (const LogitAdjustments& a : b.adjustments) {
    w.put(a.slot), w.put(a.presence_penalty), w.put(a.frequency_penalty), w.put(a.repetition_penalty), w.put(a.min_tokens);
    w.put_vector(a.end_tokens), w.put_vector(a.prompt), w.put_vector(a.completion);
    for (const auto& [token, bias] : a.bias) w.put(token), w.put(bias);
  }
  return hash64({reinterpret_cast<const char*>(w.bytes().data()), w.bytes().size()});
}

}  // namespace lockstep
