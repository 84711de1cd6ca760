#include "ops/cpu/sampler.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/det_math.h"
#include "base/error.h"

namespace lockstep {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Ascending keys are descending logits, then ascending ids.
uint64_t order_key(float logit, int32_t token) {
  const auto u = std::bit_cast<uint32_t>(logit + 0.0f);  // -0 -> 0
  const uint32_t ascending = u & 0x80000000u ? ~u : u | 0x80000000u;
  return static_cast<uint64_t>(~ascending) << 32 | static_cast<uint32_t>(token);
}
int32_t token_of(uint64_t key) { return static_cast<int32_t>(key & 0xFFFFFFFFu); }

// Tokens in order, a band of y at a time, so that a short prefix costs a few scans and a small sort.
class OrderedTokens {
 public:
  OrderedTokens(const CpuKernels& kernels, const float* logits, int64_t vocab, SamplerScratch& scratch)
      : kernels_(kernels), logits_(logits), vocab_(vocab), s_(scratch) {}

  // Appends the next tokens to scratch.kept, at most `want` of them; false if there are none left with p > 0.
  bool next(int64_t want) {
    while (at_ == static_cast<int64_t>(s_.band.size())) {
      if (band_ == std::size(kBounds)) return false;
      const float low = kBounds[band_], high = band_ == 0 ? kInfinity : kBounds[band_ - 1];
      ++band_;
      s_.band.clear();
      at_ = 0;
      sorted_ = false;
      for (int64_t i = 0; (i = kernels_.find_not_less(s_.y.data(), i, vocab_, low)) < vocab_; ++i) {
        if (s_.y[i] < high) s_.band.push_back(order_key(logits_[i], static_cast<int32_t>(i)));
      }
    }
    const auto begin = s_.band.begin() + at_;
    const int64_t n = std::min<int64_t>(want, s_.band.end() - begin);
    if (!sorted_) {
      sorted_ = s_.band.end() - begin <= kSortWhole || n == s_.band.end() - begin;
      if (!sorted_) std::nth_element(begin, begin + n, s_.band.end());
      std::sort(begin, sorted_ ? s_.band.end() : begin + n);
    }
    s_.kept.insert(s_.kept.end(), begin, begin + n);
    at_ += n;
    return true;
  }

 private:
  static constexpr float kBounds[] = {-0.5f, -1, -1.5f, -2, -3, -4, -5, -6, -8, -10, -12, -16, -20, -30, -87};
  static constexpr std::ptrdiff_t kSortWhole = 1024;  // above, only as much of a band is sorted as is asked for
  const CpuKernels& kernels_;
  const float* logits_;
  int64_t vocab_;
  SamplerScratch& s_;
  size_t band_ = 0;      // bands collected
  int64_t at_ = 0;       // of the last one, tokens given
  bool sorted_ = false;  // all that is left of it
};

// The kept tokens of top_k and top_p into scratch.kept, in order.
void filter(const CpuKernels& kernels, const float* logits, int64_t vocab, const SampleRow& row, double total,
            SamplerScratch& s) {
  s.kept.clear();
  s.band.clear();
  OrderedTokens tokens(kernels, logits, vocab, s);
  if (row.top_k > 0) {
    while (static_cast<int64_t>(s.kept.size()) < row.top_k && tokens.next(row.top_k - static_cast<int64_t>(s.kept.size()))) {
    }
    total = 0;
    for (const uint64_t key : s.kept) total += static_cast<double>(s.p[token_of(key)]);
  }
  if (row.top_p >= 1) return;
  const double needed = static_cast<double>(row.top_p) * total;
  double mass = 0;
  size_t n = 0;
  do {
    while (n == s.kept.size()) {
      if (row.top_k > 0 || !tokens.next(64 + static_cast<int64_t>(n))) return;  // all of them
    }
    mass += static_cast<double>(s.p[token_of(s.kept[n])]);
    ++n;
  } while (mass < needed);
  s.kept.resize(n);
}

int32_t draw(const CpuKernels& kernels, const float* logits, int64_t vocab, const SampleRow& row, float max,
             SamplerScratch& s) {
  s.y.resize(static_cast<size_t>(vocab));
  s.p.resize(static_cast<size_t>(vocab));
  const double total =
      kernels.soften(s.y.data(), s.p.data(), logits, vocab, max, std::min(row.temperature, std::numeric_limits<float>::max()));
  const float min_p = std::min(row.min_p, 1.0f);
  const auto position = static_cast<uint32_t>(row.position);
  const bool all_k = row.top_k <= 0 || row.top_k >= vocab;
  if (all_k && row.top_p >= 1 && !(min_p > 0)) {
    return kernels.gumbel_argmax(s.y.data(), nullptr, vocab, row.draw_key, position);
  }
  s.ids.clear();
  if (all_k && row.top_p >= 1) {
    for (int64_t i = 0; (i = kernels.find_not_less(s.p.data(), i, vocab, min_p)) < vocab; ++i) {
      s.ids.push_back(static_cast<int32_t>(i));
    }
  } else {
    SampleRow rule = row;
    if (all_k) rule.top_k = 0;
    filter(kernels, logits, vocab, rule, total, s);
    for (const uint64_t key : s.kept) {
      if (s.p[token_of(key)] >= min_p) s.ids.push_back(token_of(key));
    }
  }
  s.kept_y.clear();
  for (const int32_t id : s.ids) s.kept_y.push_back(s.y[id]);
  return kernels.gumbel_argmax(s.kept_y.data(), s.ids.data(), static_cast<int64_t>(s.ids.size()), row.draw_key, position);
}

// The n most likely tokens with their logprob = logit - max - log_sum.
std::vector<std::pair<TokenId, float>> top_logprobs(const CpuKernels& kernels, const float* logits, int64_t vocab, int64_t n,
                                                    float max, double log_sum) {
  std::vector<uint64_t> keys;
  n = std::min(n, vocab);
  if (n > 64) {
    for (int64_t i = 0; i < vocab; ++i) keys.push_back(order_key(logits[i], static_cast<int32_t>(i)));
    std::partial_sort(keys.begin(), keys.begin() + n, keys.end());
    keys.resize(static_cast<size_t>(n));
  } else if (n > 0) {
    float bound = std::numeric_limits<float>::lowest();
    for (int64_t i = 0; (i = kernels.find_not_less(logits, i, vocab, bound)) < vocab; ++i) {
      const uint64_t key = order_key(logits[i], static_cast<int32_t>(i));
      if (static_cast<int64_t>(keys.size()) == n) {
        if (key > keys.back()) continue;
        keys.pop_back();
      }
      keys.insert(std::upper_bound(keys.begin(), keys.end(), key), key);
      if (static_cast<int64_t>(keys.size()) == n) bound = logits[token_of(keys.back())];
    }
  }
  std::vector<std::pair<TokenId, float>> top;
  for (const uint64_t key : keys) {
    const float logit = logits[token_of(key)];
    if (logit == -kInfinity) break;
    top.emplace_back(token_of(key), static_cast<float>(static_cast<double>(logit) - static_cast<double>(max) - log_sum));
  }
  return top;
}

void add_logprobs(const CpuKernels& kernels, const float* logits, int64_t vocab, int32_t n, float max, SampledToken& out) {
  const double log_sum = det_log(kernels.sum_exp(logits, vocab, max));
  out.logprob = static_cast<float>(static_cast<double>(logits[out.token]) - static_cast<double>(max) - log_sum);
  out.top = top_logprobs(kernels, logits, vocab, n, max, log_sum);
}

}  // namespace

SampledToken sample_row(const CpuKernels& kernels, const float* raw, const float* adjusted, int64_t vocab, const SampleRow& row,
                        SamplerScratch& scratch) {
  SampledToken out;
  out.request = row.request;
  out.position = row.position;
  float raw_max = 0, max = 0;
  out.finite = kernels.find_max(raw, vocab, &raw_max) && kernels.find_max(adjusted, vocab, &max);
  if (!out.finite) return out;
  if (!(row.temperature > 0) || row.top_k == 1) {
    out.token = static_cast<TokenId>(kernels.find_not_less(adjusted, 0, vocab, max));
  } else {
    out.token = draw(kernels, adjusted, vocab, row, max, scratch);
  }
  if (row.n_logprobs >= 0) add_logprobs(kernels, raw, vocab, row.n_logprobs, raw_max, out);
  return out;
}

SampledToken score_row(const CpuKernels& kernels, const float* logits, int64_t vocab, const ScoreRow& row) {
  SampledToken out;
  out.request = row.request;
  out.position = row.position;
  out.token = row.target;
  check(row.target >= 0 && row.target < vocab, "scoring token ", row.target, " of ", vocab);
  float max = 0;
  out.finite = kernels.find_max(logits, vocab, &max);
  if (out.finite) add_logprobs(kernels, logits, vocab, row.n_logprobs, max, out);
  return out;
}

}  // namespace lockstep
