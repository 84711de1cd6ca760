// What a sequence's own wishes and past do to its logits before a token is drawn. One for each slot of the sample buffer; it
// counts the tokens sampled there. In this order, as vLLM does it:
//   bias        logit += bias
//   repetition  of tokens in prompt or completion: logit / penalty if positive, else logit * penalty
//   frequency   of tokens in the completion: logit -= penalty * count
//   presence    of tokens in the completion: logit -= penalty
//   min_tokens  before that many, tokens that would end the sequence: logit = -infinity
//   SlotAdjustments a(batch.adjustments[i]);  a.apply(logits, vocab, row.position);  ... a.sampled(token);
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "records/step_batch.h"

namespace lockstep {

class SlotAdjustments {
 public:
  SlotAdjustments() = default;
  explicit SlotAdjustments(const LogitAdjustments& begin);

  void apply(float* logits, int64_t vocab, int32_t position) const;  // logits [vocab]; position within the completion
  void sampled(TokenId token);

 private:
  LogitAdjustments begin_;
  std::unordered_map<TokenId, int32_t> counts_;  // of the completion; 0: in the prompt only
  bool counting_ = false;
};

}  // namespace lockstep
