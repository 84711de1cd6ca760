#include "ops/cpu/adjustments.h"

#include <limits>

#include "base/error.h"

namespace lockstep {

SlotAdjustments::SlotAdjustments(const LogitAdjustments& begin) : begin_(begin) {
  counting_ = begin.repetition_penalty != 1 || begin.frequency_penalty != 0 || begin.presence_penalty != 0;
  for (const TokenId token : begin.prompt) counts_.try_emplace(token, 0);
  for (const TokenId token : begin.completion) ++counts_[token];
}

void SlotAdjustments::apply(float* logits, int64_t vocab, int32_t position) const {
  const auto at = [&](TokenId token) -> float& {
    check(token >= 0 && token < vocab, "adjusting token ", token, " of ", vocab);
    return logits[token];
  };
  for (const auto& [token, bias] : begin_.bias) at(token) += bias;
  for (const auto& [token, count] : counts_) {  // in any order: each token is changed by its own count alone
    float& logit = at(token);
    if (begin_.repetition_penalty != 1)
      logit = logit > 0 ? logit / begin_.repetition_penalty : logit * begin_.repetition_penalty;
    if (count == 0) continue;
    logit -= begin_.frequency_penalty * static_cast<float>(count);
    logit -= begin_.presence_penalty;
  }
  if (position >= begin_.min_tokens) return;
  for (const TokenId token : begin_.end_tokens) at(token) = -std::numeric_limits<float>::infinity();
}

void SlotAdjustments::sampled(TokenId token) {
  if (counting_) ++counts_[token];
}

}  // namespace lockstep
