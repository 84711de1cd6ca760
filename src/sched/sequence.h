// One request in flight: its tokens, how far they are computed and sampled, and where its KV lies. Plain state: the
// scheduler changes it, the batch builder reads it.
//
//   tokens    p p p p p p p p g g .      8 prompt tokens, 2 generated and committed, 1 sampled but not yet known here
//   length() = 11 = n_prompt + n_sampled;  n_computed = 10: the next step computes the last token and samples the next
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "records/request.h"
#include "records/step_batch.h"
#include "sched/page_pool.h"

namespace lockstep {

struct Sequence {
  explicit Sequence(const Request& request)
      : id(request.id),
        n_prompt(static_cast<int64_t>(request.prompt.size())),
        max_tokens(request.sampling.max_tokens),
        tokens(request.prompt) {
    const SamplingParams& p = request.sampling;
    sampling = {.request = id,
                .draw_key = request.draw_key,
                .temperature = p.temperature,
                .top_p = p.top_p,
                .top_k = p.top_k,
                .min_p = p.min_p,
                .n_logprobs = p.n_logprobs};
    scored = p.prompt_logprobs;
    adjusted = p.presence_penalty != 0 || p.frequency_penalty != 0 || p.repetition_penalty != 1 || p.min_tokens > 0 ||
               !p.logit_bias.empty();
    sampling.adjusted = adjusted;
    if (!adjusted) return;
    adjustments = {.presence_penalty = p.presence_penalty,
                   .frequency_penalty = p.frequency_penalty,
                   .repetition_penalty = p.repetition_penalty,
                   .min_tokens = p.min_tokens,
                   .end_tokens = p.stop_token_ids,
                   .bias = p.logit_bias,
                   .prompt = {},
                   .completion = {}};
  }

  RequestId id = 0;
  int64_t n_prompt = 0;
  int64_t max_tokens = 0;
  SampleRow sampling;     // what its sample rows have in common
  bool scored = false;    // the prompt's tokens are scored as they are computed
  bool adjusted = false;  // its logits are changed before drawing, by `adjustments` (without slot and tokens)
  LogitAdjustments adjustments;
  std::vector<TokenId> tokens;  // [n_known()]  prompt, then the generated tokens that were committed

  int64_t n_sampled = 0;       // samples scheduled so far, committed or not: the position of the next one
  int64_t n_computed = 0;      // tokens whose KV its pages hold once the scheduled steps have run
  std::vector<PageRef> pages;  // [pages_for(n_computed)]  none while waiting, and none once the last sample is scheduled
  std::vector<PageRef> saved;  // [pages_for(n_computed)]  of the host, while preempted; else none
  int64_t n_kept = 0;          // of the pages: those that the prefix cache has been told
  int64_t chain = 0;           // PrefixCache::Chain of the last of them
  int32_t slot = -1;           // of the sample buffer; -1 while waiting
  int64_t last_sample_step = -1;
  int64_t n_scored = 0;        // prompt tokens scored so far, whether or not they were computed again after a preemption
  bool begun_in_slot = false;  // it has sampled in its present slot
  bool finished = false;       // and about to leave

  void drop_pages() {  // the last first, so that the pool hands them out again in their old order
    while (!pages.empty()) pages.pop_back();
    n_kept = chain = 0;
  }

  int64_t n_known() const { return static_cast<int64_t>(tokens.size()); }
  bool only_scores() const { return max_tokens == 0; }
  int64_t length() const { return n_prompt + n_sampled - only_scores(); }  // the last prompt token scores none
  int64_t n_left() const { return length() - n_computed; }                 // to compute before the next sample
  bool is_decoding() const { return n_sampled > 0 && n_left() == 1; }      // else prompt, or history after a preemption
  bool is_committed() const { return n_known() == n_prompt + n_sampled; }  // no sampled token is still unknown
  bool is_complete() const { return n_sampled == max_tokens && (!only_scores() || n_left() == 0); }  // nothing more to compute
  bool may_grow(int64_t n_pages) const { return pages_for(n_prompt + max_tokens - 1) > n_pages; }    // once it holds n_pages
  bool may_grow() const { return may_grow(static_cast<int64_t>(pages.size())); }
};

}  // namespace lockstep
