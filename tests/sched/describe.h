// Step batches as one line of text each, and shorthands for events, so that a test reads as a table of steps.
//   "10 11 12 @0 [5] >s0#0 | <s1 @17 [2 3] >s1#4"
//   first sequence:  tokens 10, 11, 12 at positions 0 .. 2, page 5; then samples its completion's token 0 into slot 0
//   second:          the token last sampled into slot 1, at position 17, pages 2 and 3; samples token 4 into slot 1
//   "save 1>0 2>1 | restore 3<0 | ...": pages 1 and 2 go to the host's pages 0 and 1 first, and page 3 comes from there
#pragma once

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "records/step_batch.h"
#include "records/step_events.h"
#include "sched/scheduler.h"

namespace lockstep {

inline std::string describe(const StepBatch& b) {
  std::ostringstream text;
  const auto copies = [&](const char* what, const char* way, const std::vector<PageCopy>& pages) {
    if (pages.empty()) return;
    text << what;
    for (const PageCopy& c : pages) text << " " << c.page << way << c.host_page;
    text << " | ";
  };
  copies("save", ">", b.saved);
  copies("restore", "<", b.restored);
  size_t sample = 0;
  for (size_t i = 0; i < b.kv_lengths.size(); ++i) {
    if (i > 0) text << " | ";
    const auto begin = static_cast<size_t>(b.q_offsets[i]), end = static_cast<size_t>(b.q_offsets[i + 1]);
    for (size_t t = begin; t < end; ++t)
      if (is_reference(b.token_ids[t]))
        text << "<s" << slot_of(b.token_ids[t]) << " ";
      else
        text << b.token_ids[t] << " ";
    text << "@" << b.positions[begin] << " [";
    for (int32_t p = b.page_offsets[i]; p < b.page_offsets[i + 1]; ++p)
      text << (p > b.page_offsets[i] ? " " : "") << b.pages[static_cast<size_t>(p)];
    text << "]";
    if (sample < b.samples.size() && b.samples[sample].row == b.q_offsets[i + 1] - 1) {
      text << " >s" << b.samples[sample].slot << "#" << b.samples[sample].position;
      ++sample;
    }
  }
  if (sample != b.samples.size()) text << " and samples that fit no sequence";
  return text.str();
}

// Schedules the next step.
inline std::string step(Scheduler& s) {
  std::string text = describe(s.schedule());
  s.check_integrity();
  return text;
}

// Prompt tokens 100 id, 100 id + 1, ...: request 1 with 3 tokens is 100 101 102.
inline Request request(RequestId id, int n_prompt, int max_tokens) {
  Request r;
  r.id = id;
  for (int i = 0; i < n_prompt; ++i) r.prompt.push_back(static_cast<TokenId>(100 * id + i));
  r.sampling.max_tokens = max_tokens;
  return r;
}

using Sampled = std::vector<StepEvents::Token>;

inline StepEvents events(int64_t step, std::vector<Request> admitted, Sampled sampled = {}) {
  return {.step = step, .admitted = std::move(admitted), .sampled = std::move(sampled)};
}

constexpr bool kFinished = true;

// Steps 0 to 3: admits these, and requests 1 and 2 sample 11, 12, 13 and 21, 22, 23.
inline void three_tokens_each(Scheduler& s, std::vector<Request> admitted) {
  step(s);
  s.commit(events(0, std::move(admitted)));
  for (int k = 1; k < 4; ++k) {
    step(s);
    s.commit(events(k, {}, {{1, 10 + k}, {2, 20 + k}}));
  }
}

}  // namespace lockstep
