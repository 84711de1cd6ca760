// What the scheduler does, step by step, by example. describe.h says how to read a step.
#include "sched/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "sched/describe.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Scheduler, TheArraysOfAStep) {
  Scheduler s({.n_pages = 16, .max_batch_tokens = 12, .max_sequences = 4, .max_model_len = 64});
  Request a = request(1, 2, 5), b = request(2, 20, 5);
  a.draw_key = 77;
  a.sampling.temperature = 0.5f;
  a.sampling.top_p = 0.9f;
  a.sampling.top_k = 40;
  a.sampling.min_p = 0.1f;
  a.sampling.n_logprobs = 3;

  const StepBatch nothing = s.schedule();  // nothing admitted yet, and the step counts
  EXPECT_EQ(nothing.step, 0);
  EXPECT_EQ(nothing.n_tokens(), 0);
  EXPECT_EQ(nothing.n_seqs(), 0);
  EXPECT_THAT(nothing.q_offsets, ElementsAre(0));
  EXPECT_THAT(nothing.page_offsets, ElementsAre(0));

  s.commit(events(0, {a, b}));
  const StepBatch first = s.schedule();  // a whole, b's first 10 tokens of 20
  EXPECT_EQ(first.step, 1);
  EXPECT_THAT(first.token_ids, ElementsAre(100, 101, 200, 201, 202, 203, 204, 205, 206, 207, 208, 209));
  EXPECT_THAT(first.positions, ElementsAre(0, 1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_THAT(first.q_offsets, ElementsAre(0, 2, 12));
  EXPECT_THAT(first.kv_lengths, ElementsAre(2, 10));
  EXPECT_THAT(first.page_offsets, ElementsAre(0, 1, 2));
  EXPECT_THAT(first.pages, ElementsAre(0, 1));
  ASSERT_EQ(first.samples.size(), 1u);  // b has prompt tokens to come
  const SampleRow& row = first.samples[0];
  EXPECT_EQ(row.row, 1);
  EXPECT_EQ(row.slot, 0);
  EXPECT_EQ(row.request, 1);
  EXPECT_EQ(row.draw_key, 77u);
  EXPECT_EQ(row.position, 0);
  EXPECT_EQ(row.temperature, 0.5f);
  EXPECT_EQ(row.top_p, 0.9f);
  EXPECT_EQ(row.top_k, 40);
  EXPECT_EQ(row.min_p, 0.1f);
  EXPECT_EQ(row.n_logprobs, 3);

  s.commit(events(1, {}, {{1, 55}}));
  const StepBatch second = s.schedule();  // a decodes, b's last 10 tokens
  EXPECT_THAT(second.token_ids, ElementsAre(55, 210, 211, 212, 213, 214, 215, 216, 217, 218, 219));
  EXPECT_THAT(second.positions, ElementsAre(2, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19));
  EXPECT_THAT(second.q_offsets, ElementsAre(0, 1, 11));
  EXPECT_THAT(second.kv_lengths, ElementsAre(3, 20));
  EXPECT_THAT(second.page_offsets, ElementsAre(0, 1, 3));
  EXPECT_THAT(second.pages, ElementsAre(0, 1, 2));
  ASSERT_EQ(second.samples.size(), 2u);
  EXPECT_EQ(second.samples[0].row, 0);
  EXPECT_EQ(second.samples[0].position, 1);
  EXPECT_EQ(second.samples[1].row, 10);
  EXPECT_EQ(second.samples[1].request, 2);
  EXPECT_EQ(second.samples[1].position, 0);
}

TEST(Scheduler, LagZeroIsTheSimpleLoop) {
  Scheduler s({.n_pages = 4, .max_batch_tokens = 8, .max_sequences = 2, .max_model_len = 16});
  EXPECT_TRUE(s.idle());
  EXPECT_EQ(step(s), "");
  s.commit(events(0, {request(1, 2, 3), request(2, 1, 9), request(3, 1, 1)}));
  EXPECT_FALSE(s.idle());
  EXPECT_EQ(s.n_waiting(), 3);
  EXPECT_EQ(step(s), "100 101 @0 [0] >s0#0 | 200 @0 [1] >s1#0");  // two slots: 3 waits
  s.commit(events(1, {}, {{1, 7}, {2, 8}}));
  EXPECT_EQ(s.n_waiting(), 1);
  EXPECT_EQ(s.n_running(), 2);
  EXPECT_EQ(s.n_pages_used(), 2);
  EXPECT_EQ(step(s), "7 @2 [0] >s0#1 | 8 @1 [1] >s1#1");
  s.commit(events(2, {}, {{1, 17}, {2, 18, kFinished}}));
  EXPECT_EQ(step(s), "17 @3 [0] >s0#2 | 300 @0 [1] >s1#0");  // slot and page of 2
  s.commit(events(3, {}, {{1, 27, kFinished}, {3, 9, kFinished}}));
  s.check_integrity();
  EXPECT_EQ(s.n_pages_used(), 0);
  EXPECT_EQ(s.n_running(), 0);
  EXPECT_TRUE(s.idle());
  EXPECT_EQ(step(s), "");
  EXPECT_TRUE(s.idle()) << "an empty step in flight changes nothing";
}

TEST(Scheduler, BudgetOfOneToken) {
  Scheduler s({.n_pages = 4, .max_batch_tokens = 1, .max_sequences = 2, .max_model_len = 16});
  step(s);
  s.commit(events(0, {request(1, 3, 2), request(2, 1, 1)}));
  EXPECT_EQ(step(s), "100 @0 [0]");
  s.commit(events(1, {}));
  EXPECT_EQ(step(s), "101 @1 [0]");
  s.commit(events(2, {}));
  EXPECT_EQ(step(s), "102 @2 [0] >s0#0");
  s.commit(events(3, {}, {{1, 7}}));
  EXPECT_EQ(step(s), "7 @3 [0] >s0#1");  // decodes before admissions
  s.commit(events(4, {}, {{1, 8, kFinished}}));
  EXPECT_EQ(step(s), "200 @0 [0] >s0#0");
  s.commit(events(5, {}, {{2, 9, kFinished}}));
  EXPECT_TRUE(s.idle());
}

TEST(Scheduler, LagOneFeedsReferences) {
  Scheduler s({.n_pages = 4, .max_batch_tokens = 8, .max_sequences = 2, .max_model_len = 16, .lag = 1});
  EXPECT_EQ(step(s), "");
  EXPECT_EQ(step(s), "");
  s.commit(events(0, {request(1, 2, 3)}));
  EXPECT_EQ(step(s), "100 101 @0 [0] >s0#0");
  s.commit(events(1, {}));
  EXPECT_EQ(step(s), "<s0 @2 [0] >s0#1");  // step 3 doesn't know what step 2 sampled
  s.commit(events(2, {}, {{1, 7}}));
  EXPECT_EQ(step(s), "<s0 @3 [0] >s0#2");
  EXPECT_EQ(s.n_pages_used(), 0) << "the last sample is scheduled";
  s.commit(events(3, {}, {{1, 8}}));
  EXPECT_EQ(step(s), "") << "max_tokens is 3: counted, not waited for";
  EXPECT_EQ(s.n_running(), 1);
  EXPECT_FALSE(s.idle());
  s.commit(events(4, {}, {{1, 9, kFinished}}));
  EXPECT_EQ(step(s), "");
  EXPECT_TRUE(s.idle());
}

TEST(Scheduler, AFinishedSequenceHoldsItsSlotUntilItsLastStepIsCommitted) {
  Scheduler s({.n_pages = 4, .max_batch_tokens = 8, .max_sequences = 1, .max_model_len = 16, .lag = 1});
  step(s);
  step(s);
  s.commit(events(0, {request(1, 2, 9), request(2, 1, 9)}));
  EXPECT_EQ(step(s), "100 101 @0 [0] >s0#0");
  s.commit(events(1, {}));
  EXPECT_EQ(step(s), "<s0 @2 [0] >s0#1");
  s.commit(events(2, {}, {{1, 7, kFinished}}));  // step 3 is one token too many, and writes slot 0
  EXPECT_EQ(s.n_pages_used(), 0) << "pages are free at once";
  EXPECT_EQ(s.n_running(), 0);
  EXPECT_EQ(step(s), "");
  EXPECT_FALSE(s.idle());
  s.commit(events(3, {}, {}));  // the token of 1 is left out
  EXPECT_EQ(step(s), "200 @0 [0] >s0#0");
}

TEST(Scheduler, LagFour) {
  Scheduler s({.n_pages = 4, .max_batch_tokens = 4, .max_sequences = 2, .max_model_len = 16, .lag = 4});
  for (int k = 0; k < 5; ++k) EXPECT_EQ(step(s), "");
  s.commit(events(0, {request(1, 2, 9), request(2, 3, 3)}));
  EXPECT_EQ(step(s), "100 101 @0 [0] >s0#0 | 200 201 @0 [1]");
  s.commit(events(1, {}));
  EXPECT_EQ(step(s), "<s0 @2 [0] >s0#1 | 202 @2 [1] >s1#0");
  s.commit(events(2, {}));
  EXPECT_EQ(step(s), "<s0 @3 [0] >s0#2 | <s1 @3 [1] >s1#1");
  s.commit(events(3, {}));
  EXPECT_EQ(step(s), "<s0 @4 [0] >s0#3 | <s1 @4 [1] >s1#2");
  s.commit(events(4, {}));
  EXPECT_EQ(step(s), "<s0 @5 [0] >s0#4");  // 2 has its three samples under way
  s.commit(events(5, {request(3, 1, 1)}, {{1, 7, kFinished}}));
  EXPECT_EQ(step(s), "") << "slot 0 is held by step 9, slot 1 by request 2";
  s.commit(events(6, {}, {{2, 8}}));
  EXPECT_EQ(step(s), "");
  s.commit(events(7, {}, {{2, 9, kFinished}}));  // by EOS: step 8 is one too many
  EXPECT_EQ(step(s), "");
  s.commit(events(8, {}, {}));
  EXPECT_EQ(step(s), "300 @0 [0] >s1#0");  // page 0 was given back last
}

TEST(Scheduler, WithoutReferencesMicroBatchesTakeTurns) {  // two stages: lag 1
  Scheduler s(
      {.n_pages = 8, .max_batch_tokens = 64, .max_sequences = 4, .max_model_len = 16, .lag = 1, .resolve_references = false});
  step(s);
  step(s);
  s.commit(events(0, {request(1, 1, 9), request(2, 1, 9), request(3, 1, 9), request(4, 1, 9)}));
  EXPECT_EQ(step(s), "100 @0 [0] >s0#0 | 200 @0 [1] >s1#0");  // half of them: the other half is the next micro-batch
  s.commit(events(1, {}));
  EXPECT_EQ(step(s), "300 @0 [2] >s2#0 | 400 @0 [3] >s3#0");
  s.commit(events(2, {}, {{1, 11}, {2, 21}}));
  EXPECT_EQ(step(s), "11 @1 [0] >s0#1 | 21 @1 [1] >s1#1");
  s.commit(events(3, {}, {{3, 31, kFinished}, {4, 41, kFinished}}));
  EXPECT_EQ(step(s), "") << "1 and 2 wait for their tokens";
  s.commit(events(4, {}, {{1, 12}, {2, 22}}));
  EXPECT_EQ(step(s), "12 @2 [0] >s0#2");  // two are left, so one for each micro-batch
  s.commit(events(5, {}));
  EXPECT_EQ(step(s), "22 @2 [1] >s1#2");
  s.commit(events(6, {}, {{1, 13, kFinished}}));
  EXPECT_EQ(step(s), "");
  s.commit(events(7, {}, {{2, 23, kFinished}}));
  EXPECT_TRUE(s.idle());
}

TEST(Scheduler, WithoutReferencesFourStages) {  // lag 3: a sequence decodes at every fourth step
  Scheduler s(
      {.n_pages = 8, .max_batch_tokens = 2, .max_sequences = 4, .max_model_len = 16, .lag = 3, .resolve_references = false});
  for (int k = 0; k < 4; ++k) EXPECT_EQ(step(s), "");
  s.commit(events(0, {request(1, 5, 2)}));
  EXPECT_EQ(step(s), "100 101 @0 [0]");  // chunks of a prompt need no token: consecutive steps
  s.commit(events(1, {}));
  EXPECT_EQ(step(s), "102 103 @2 [0]");
  s.commit(events(2, {}));
  EXPECT_EQ(step(s), "104 @4 [0] >s0#0");
  for (int k = 3; k < 6; ++k) {
    s.commit(events(k, {}));
    EXPECT_EQ(step(s), "");
  }
  s.commit(events(6, {}, {{1, 7}}));
  EXPECT_EQ(step(s), "7 @5 [0] >s0#1");
}

TEST(Scheduler, IsIdleOnlyWhenTheLastStepIsCommitted) {
  Scheduler s({.n_pages = 1, .max_batch_tokens = 8, .max_sequences = 1, .max_model_len = 16, .lag = 1});
  step(s);
  step(s);
  s.commit(events(0, {request(1, 2, 9)}));
  step(s);
  s.commit(events(1, {}));
  EXPECT_EQ(step(s), "<s0 @2 [0] >s0#1");
  s.commit(events(2, {}, {{1, 7, kFinished}}));
  EXPECT_EQ(s.n_running() + s.n_waiting(), 0);
  EXPECT_FALSE(s.idle()) << "step 3 is still under way";
  EXPECT_EQ(step(s), "");
  s.commit(events(3, {}, {}));
  EXPECT_TRUE(s.idle());
}

std::string usage_error(const SchedulerOptions& options) {
  try {
    Scheduler s(options);
  } catch (const Error& e) {
    EXPECT_EQ(e.code, ExitCode::usage);
    return e.what();
  }
  return "accepted";
}

TEST(Scheduler, RefusesImpossibleOptions) {
  const SchedulerOptions good{.n_pages = 4, .max_batch_tokens = 1, .max_sequences = 1, .max_model_len = 64};
  EXPECT_EQ(usage_error(good), "accepted");
  SchedulerOptions o = good;
  o.n_pages = 3;
  EXPECT_EQ(usage_error(o), "the KV pool holds 3 pages (48 tokens), one sequence of 64 tokens needs 4");
  o = good, o.max_batch_tokens = 0;
  EXPECT_THAT(usage_error(o), HasSubstr("max_batch_tokens is 0"));
  o = good, o.max_sequences = int64_t{1} << 40;
  EXPECT_THAT(usage_error(o), HasSubstr("max_sequences is 1099511627776"));
  o = good, o.max_model_len = -1;
  EXPECT_THAT(usage_error(o), HasSubstr("max_model_len is -1"));
  o = good, o.n_pages = int64_t{1} << 40;
  EXPECT_THAT(usage_error(o), HasSubstr("n_pages"));
  o = good, o.lag = -1;
  EXPECT_THAT(usage_error(o), HasSubstr("lag is -1"));
  o = good, o.token_unit = 0;
  EXPECT_THAT(usage_error(o), HasSubstr("token_unit is 0"));
}

// Events that don't fit: each gets a fresh scheduler whose step 1 sampled for requests 1 and 2.
TEST(Scheduler, RefusesEventsThatDontFit) {
  const auto after_one_step = [](const StepEvents& e) {
    Scheduler s({.n_pages = 4, .max_batch_tokens = 8, .max_sequences = 2, .max_model_len = 16});
    s.schedule();
    s.commit(events(0, {request(1, 2, 1), request(2, 1, 9)}));
    s.schedule();
    try {
      s.commit(e);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const Sampled good = {{1, 5, kFinished}, {2, 6}};
  EXPECT_EQ(after_one_step(events(1, {request(3, 1, 1)}, good)), "accepted");
  EXPECT_THAT(after_one_step(events(0, {}, good)), HasSubstr("events of step 0"));
  EXPECT_THAT(after_one_step(events(2, {}, good)), HasSubstr("events of step 2"));
  EXPECT_THAT(after_one_step(events(1, {}, {{2, 6}})), HasSubstr("request 1"));
  EXPECT_THAT(after_one_step(events(1, {}, {{1, 5, kFinished}})), HasSubstr("request 2"));
  EXPECT_THAT(after_one_step(events(1, {}, {{2, 6}, {1, 5, kFinished}})), HasSubstr("request 1"));
  EXPECT_THAT(after_one_step(events(1, {}, {{1, 5, kFinished}, {2, 6}, {2, 7}})), HasSubstr("didn't sample"));
  EXPECT_THAT(after_one_step(events(1, {}, {{1, 5}, {2, 6}})), HasSubstr("request 1 has all of its 1 tokens"));
  EXPECT_THAT(after_one_step(events(1, {}, {{1, 5, kFinished}, {2, -1}})), HasSubstr("token -1"));
  EXPECT_EQ(after_one_step(events(1, {}, {{1, -1, kFinished}, {2, 6}})), "accepted");  // a fault's token means nothing
  EXPECT_THAT(after_one_step(events(1, {request(2, 1, 1)}, good)), HasSubstr("request 2 admitted after 2"));
  EXPECT_THAT(after_one_step(events(1, {request(4, 1, 1), request(3, 1, 1)}, good)), HasSubstr("request 3 admitted after 4"));
  EXPECT_THAT(after_one_step(events(1, {request(3, 0, 1)}, good)), HasSubstr("0 prompt tokens"));
  EXPECT_THAT(after_one_step(events(1, {request(3, 1, 0)}, good)), HasSubstr("request 3: nothing to compute"));
  EXPECT_THAT(after_one_step(events(1, {request(3, 10, 7)}, good)), HasSubstr("max_model_len 16"));
  EXPECT_THAT(after_one_step(events(1, {request(3, 10, 2147483647)}, good)), HasSubstr("max_model_len 16"));
  Request negative = request(3, 2, 1);
  negative.prompt[1] = sampled_in(0);
  EXPECT_THAT(after_one_step(events(1, {negative}, good)), HasSubstr("negative token"));
}

TEST(Scheduler, KeepsItsLag) {
  Scheduler s({.n_pages = 4, .max_batch_tokens = 8, .max_sequences = 2, .max_model_len = 16, .lag = 1});
  EXPECT_THROW(s.commit(events(0, {})), Error) << "step 0 isn't scheduled yet";
  s.schedule();
  s.schedule();
  EXPECT_THROW(s.schedule(), Error) << "two steps in flight";
  Scheduler early({.n_pages = 4, .max_batch_tokens = 8, .max_sequences = 2, .max_model_len = 16, .lag = 1});
  early.schedule();
  early.commit(events(0, {}));
  EXPECT_THROW(early.schedule(), Error) << "step 1 would know step 0";
}

}  // namespace
}  // namespace lockstep
