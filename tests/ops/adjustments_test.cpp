#include "ops/cpu/adjustments.h"

#include "tests/ops/ops_testing.h"

namespace lockstep {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> adjusted(const SlotAdjustments& a, std::vector<float> logits, int32_t position) {
  a.apply(logits.data(), static_cast<int64_t>(logits.size()), position);
  return logits;
}

TEST(Adjustments, EachByItself) {
  const std::vector<float> logits = {4, -4, 8, 2, 0};
  LogitAdjustments a;
  a.bias = {{1, 10}, {1, 1}, {4, -kInf}};
  EXPECT_EQ(adjusted(SlotAdjustments(a), logits, 0), (std::vector<float>{4, 7, 8, 2, -kInf}));
  a = {};
  a.repetition_penalty = 2;
  a.prompt = {0, 0, 1}, a.completion = {3, 3};
  EXPECT_EQ(adjusted(SlotAdjustments(a), logits, 0), (std::vector<float>{2, -8, 8, 1, 0}));  // once a token, not once a time
  a = {};
  a.frequency_penalty = 0.5f, a.prompt = {0}, a.completion = {3, 3, 2};
  EXPECT_EQ(adjusted(SlotAdjustments(a), logits, 0), (std::vector<float>{4, -4, 7.5f, 1, 0}));  // the prompt doesn't count
  a.frequency_penalty = 0, a.presence_penalty = 0.5f;
  EXPECT_EQ(adjusted(SlotAdjustments(a), logits, 0), (std::vector<float>{4, -4, 7.5f, 1.5f, 0}));
  a = {};
  a.min_tokens = 2, a.end_tokens = {0, 2};
  EXPECT_EQ(adjusted(SlotAdjustments(a), logits, 1), (std::vector<float>{-kInf, -4, -kInf, 2, 0}));
  EXPECT_EQ(adjusted(SlotAdjustments(a), logits, 2), logits);
  a.bias = {{5, 1}};
  EXPECT_THROW(adjusted(SlotAdjustments(a), logits, 0), Error);
}

class Adjusted : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Ops> ops = make_cpu_ops({.n_threads = 2, .n_slots = 4, .instruction_set = GetParam()});
  int64_t step = 0;

  // One step of one greedy sequence in slot 1.
  SampledToken next(const std::vector<float>& logits, bool uses, std::vector<LogitAdjustments> begins) {
    StepBatch batch = short_sequences(++step, {1});
    batch.samples = {{.row = 0, .slot = 1, .position = static_cast<int32_t>(step - 1), .n_logprobs = 1, .adjusted = uses}};
    batch.adjustments = std::move(begins);
    const Matrix matrix(*ops, DType::f32, 1, static_cast<int64_t>(logits.size()), logits);
    ops->sample(matrix.view, ops->upload_batch(batch));
    return ops->collect(step).sampled.at(0);
  }
};

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
  EXPECT_FALSE(next({1, 2}, true, {begin}).finite);
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
  EXPECT_THROW(ops->score(row(0, 1), device, {0, 1}), Error);  // again
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

INSTANTIATE_TEST_SUITE_P(Cpu, Adjusted, ::testing::ValuesIn(instruction_sets()), [](const auto& test) { return test.param; });

}  // namespace
}  // namespace lockstep
