// What sequences wish for their logits, and scores of known tokens, on each device.
#include "tests/ops/devices.h"

namespace lockstep {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

class Adjusted : public OpsTest {
 protected:
  Adjusted() : OpsTest(4) {}
  int64_t step = 0;

  // One step of one greedy sequence in slot 1. One test keeps to one vocabulary: counts go by slot and token.
  SampledToken next(const std::vector<float>& logits, bool uses, std::vector<LogitAdjustments> begins, int32_t position = -1) {
    StepBatch batch = short_sequences(++step, {1});
    const int32_t at = position >= 0 ? position : static_cast<int32_t>(step - 1);
    batch.samples = {{.row = 0, .slot = 1, .position = at, .n_logprobs = 1, .adjusted = uses}};
    batch.adjustments = std::move(begins);
    const Matrix matrix(*ops, DType::f32, 1, static_cast<int64_t>(logits.size()), logits);
    ops->sample(matrix.view, ops->upload_batch(batch));
    return ops->collect(step).sampled.at(0);
  }

  // The logit of token 1 after its adjustments, to the bit: it loses against an equal one of token 0, which nothing adjusts,
  // and wins against the next smaller.
  void expect_becomes(float logit, const LogitAdjustments& a, float want, int32_t position = 0) {
    EXPECT_EQ(next({want == -kInf ? -3e38f : want, logit, -kInf, -kInf}, true, {a}, position).token, 0) << logit << " " << want;
    if (want == -kInf) return;
    EXPECT_EQ(next({std::nextafter(want, -kInf), logit, -kInf, -kInf}, true, {a}, position).token, 1) << logit << " " << want;
  }
};

TEST_P(Adjusted, EachByItselfToTheBit) {
  LogitAdjustments a;
  a.slot = 1, a.bias = {{1, 10.3f}, {3, 5}};
  expect_becomes(0.1f, a, 0.1f + 10.3f);
  a = {}, a.slot = 1, a.bias = {{1, -kInf}};
  expect_becomes(2, a, -kInf);
  a = {}, a.slot = 1, a.repetition_penalty = 1.3f, a.prompt = {1, 1, 2};  // once a token, not once a time
  expect_becomes(8, a, 8 / 1.3f);
  expect_becomes(-4, a, -4 * 1.3f);
  a.prompt = {}, a.completion = {1, 1, 2};
  expect_becomes(8, a, 8 / 1.3f);
  a.completion = {2};
  expect_becomes(8, a, 8);
  a = {}, a.slot = 1, a.frequency_penalty = 0.3f, a.completion = {2, 1, 1, 1};
  expect_becomes(2, a, 2 - 0.3f * 3);
  a.completion = {}, a.prompt = {1};  // the prompt doesn't count
  expect_becomes(2, a, 2);
  a = {}, a.slot = 1, a.presence_penalty = 0.7f, a.completion = {1, 1};
  expect_becomes(2, a, 2 - 0.7f);
  a = {}, a.slot = 1, a.min_tokens = 2, a.end_tokens = {1, 3};
  expect_becomes(2, a, -kInf, 1);
  expect_becomes(2, a, 2, 2);
}

TEST_P(Adjusted, AllTogetherInOrder) {
  LogitAdjustments a;
  a.slot = 1, a.presence_penalty = 0.7f, a.frequency_penalty = 0.3f, a.repetition_penalty = 1.3f;
  a.bias = {{1, 0.1f}}, a.prompt = {1}, a.completion = {1, 2, 1};
  expect_becomes(3.7f, a, ((3.7f + 0.1f) / 1.3f - 0.3f * 2) - 0.7f);
  expect_becomes(-3.7f, a, ((-3.7f + 0.1f) * 1.3f - 0.3f * 2) - 0.7f);
  a.min_tokens = 1, a.end_tokens = {1}, a.bias = {{1, 1e30f}};
  expect_becomes(0, a, -kInf);
}

// A bias and the logits with the bias in them draw the same tokens.
TEST_P(Adjusted, DrawsAreFromTheAdjustedLogits) {
  const int64_t vocab = 97;
  auto logits = random_values(2 * vocab, 5, DType::f32, 3.0f);
  LogitAdjustments a;
  a.slot = 1;
  for (int32_t t = 0; t < vocab; ++t) {
    if (t % 3 == 0) a.bias.emplace_back(t, 0.7f * static_cast<float>(t % 5));
    logits[vocab + t] = logits[t] + (t % 3 == 0 ? 0.7f * static_cast<float>(t % 5) : 0);
  }
  int n_other = 0;
  const auto unbiased = std::max_element(logits.begin(), logits.begin() + vocab) - logits.begin();
  for (int32_t i = 0; i < 60; ++i) {
    StepBatch batch = short_sequences(i + 1, {1, 1});
    const uint64_t key = 0x123456789ull * static_cast<uint64_t>(i + 1);
    const int32_t top_k = i % 2 == 0 ? 0 : 12;
    const float top_p = i % 3 == 0 ? 0.8f : 1.0f;
    batch.samples = {
        {.row = 0, .slot = 1, .draw_key = key, .position = i, .temperature = 0.9f, .top_p = top_p, .top_k = top_k},
        {.row = 1, .slot = 2, .draw_key = key, .position = i, .temperature = 0.9f, .top_p = top_p, .top_k = top_k}};
    batch.samples[0].adjusted = true;
    if (i == 0) batch.adjustments = {a};
    const Matrix matrix(*ops, DType::f32, 2, vocab, logits);
    ops->sample(matrix.view, ops->upload_batch(batch));
    const auto got = ops->collect(i + 1).sampled;
    EXPECT_EQ(got.at(0).token, got.at(1).token) << i;
    n_other += got.at(0).token != unbiased;
  }
  EXPECT_GT(n_other, 10);
}

// With a presence penalty of 3, equal logits come one after the other; logprobs stay those of the raw logits.
TEST_P(Adjusted, CountsWhatItsSlotSampled) {
  const std::vector<float> logits = {1, 2, 1.5f, 0};
  LogitAdjustments begin;
  begin.slot = 1, begin.presence_penalty = 3;
  const auto raw = reference::log_softmax(as_double(logits));
  std::vector<TokenId> tokens;
  for (int i = 0; i < 4; ++i) {
    const auto t = next(logits, true, i == 0 ? std::vector{begin} : std::vector<LogitAdjustments>{});
    tokens.push_back(t.token);
    EXPECT_NEAR(t.logprob, raw[t.token], 1e-6);
    EXPECT_EQ(t.top.at(0).first, 1);
  }
  EXPECT_EQ(tokens, (std::vector<TokenId>{1, 2, 0, 3}));
  EXPECT_EQ(next(logits, false, {}).token, 1);  // a row that is not adjusted in the same slot
  begin.bias = {{3, 10}};
  EXPECT_EQ(next(logits, true, {begin}).token, 3);  // the slot's next sequence starts anew
  begin = {}, begin.slot = 2, begin.bias = {{0, 50}};
  EXPECT_EQ(next(logits, true, {begin}).token, 3);  // another slot's don't concern it
}

TEST_P(Adjusted, AllForbiddenIsNotFinite) {
  LogitAdjustments begin;
  begin.slot = 1, begin.bias = {{0, -kInf}, {1, -kInf}};
  EXPECT_FALSE(next({1, 2, -kInf}, true, {begin}).finite);
  EXPECT_TRUE(next({1, 2, 3}, true, {}).finite);
}

TEST_P(Adjusted, ScoresInPiecesBesideSamples) {
  const int64_t vocab = 533;
  const auto logits = random_values(3 * vocab, 8, DType::f32, 7.0f);
  StepBatch batch = short_sequences(1, {3});
  batch.samples = {{.row = 2, .n_logprobs = 0}};
  for (int32_t r = 0; r < 3; ++r)
    batch.scores.push_back({.row = r, .request = 5, .position = r + 1, .target = 100 * r, .n_logprobs = r});
  const DeviceBatch device = ops->upload_batch(batch);
  const Matrix all(*ops, DType::f32, 3, vocab, logits);
  const auto row = [&](int64_t first, int64_t n) {
    TensorView v = all.view;
    v.data += first * v.row_stride * 4, v.rows = n;
    return v;
  };
  ops->score(row(0, 2), device, {0, 2});
  ops->sample(row(2, 1), device);
  EXPECT_THROW(ops->score(row(0, 2), device, {2, 4}), Error);  // beyond the end
  ops->score(row(2, 1), device, {2, 3});
  const StepOutcome outcome = ops->collect(1);
  ASSERT_EQ(outcome.scored.size(), 3u);
  EXPECT_EQ(outcome.sampled.size(), 1u);
  for (int64_t r = 0; r < 3; ++r) {
    const auto want = reference::log_softmax(as_double({logits.begin() + r * vocab, logits.begin() + (r + 1) * vocab}));
    const SampledToken& t = outcome.scored[r];
    EXPECT_EQ(t.request, 5);
    EXPECT_EQ(t.position, r + 1);
    EXPECT_EQ(t.token, 100 * r);
    EXPECT_NEAR(t.logprob, want[100 * r], 2e-6);
    EXPECT_EQ(static_cast<int64_t>(t.top.size()), r);
  }
  batch.step = 2;
  batch.scores[0].target = static_cast<TokenId>(vocab);
  EXPECT_THROW(ops->score(row(0, 1), ops->upload_batch(batch), {0, 1}), Error);
}

TEST_P(Adjusted, RefusesToScoreARowTwice) {
  if (like_gpu()) GTEST_SKIP() << "on a GPU each call adds its rows to the step's";
  StepBatch batch = short_sequences(1, {2});
  batch.scores = {{.row = 0}, {.row = 1}};
  const DeviceBatch device = ops->upload_batch(batch);
  const Matrix logits(*ops, DType::f32, 1, 3, {1, 2, 3});
  ops->score(logits.view, device, {0, 1});
  EXPECT_THROW(ops->score(logits.view, device, {0, 1}), Error);
  EXPECT_NO_THROW(ops->score(logits.view, device, {1, 2}));
}

INSTANTIATE_TEST_SUITE_P(Cpu, Adjusted, sampling_cpu_cases(), case_name);
INSTANTIATE_TEST_SUITE_P(Apart, Adjusted, apart_cases(), case_name);
INSTANTIATE_TEST_SUITE_P(Cuda, Adjusted, cuda_cases(), case_name);

}  // namespace
}  // namespace lockstep
