#include "sched/batch_builder.h"

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

void BatchBuilder::add(const Sequence& s, int64_t n_new) {
  const int64_t begin = s.n_computed, end = s.n_computed + n_new;
  const int64_t n_pages = pages_for(end);
  check(n_new > 0 && end <= s.length(), "request ", s.id, ": ", n_new, " new tokens after ", begin, " of ", s.length());
  check(n_pages <= static_cast<int64_t>(s.pages.size()), "request ", s.id, ": ", s.pages.size(), " pages for ", end, " tokens");
  // The sample buffer holds the last sample of a slot only.
  check(end <= s.n_known() || (end == s.length() && n_new == 1), "request ", s.id, ": an unknown token inside its history");

  for (int64_t i = begin; i < end; ++i) {
    batch_.token_ids.push_back(i < s.n_known() ? s.tokens[static_cast<size_t>(i)] : sampled_in(s.slot));
    batch_.positions.push_back(static_cast<int32_t>(i));
  }
  for (int64_t i = 0; i < n_pages; ++i) batch_.pages.push_back(s.pages[static_cast<size_t>(i)].id());
  batch_.q_offsets.push_back(static_cast<int32_t>(batch_.token_ids.size()));
  batch_.kv_lengths.push_back(static_cast<int32_t>(end));
  batch_.page_offsets.push_back(static_cast<int32_t>(batch_.pages.size()));
  if (end == s.length()) {
    SampleRow& row = batch_.samples.emplace_back(s.sampling);
    row.row = batch_.q_offsets.back() - 1;
    row.slot = s.slot;
    row.position = static_cast<int32_t>(s.n_sampled);
  }
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
    w.put(s.top_p), w.put(s.top_k), w.put(s.min_p), w.put(s.n_logprobs);
  }
  return hash64({reinterpret_cast<const char*>(w.bytes().data()), w.bytes().size()});
}

}  // namespace lockstep
