// Steps of whole token units, by example: which chunk is cut, and which isn't. describe.h says how to read a step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sched/describe.h"
#include "sched/scheduler.h"

namespace lockstep {
namespace {

using testing::ElementsAre;

TEST(TokenUnit, TheLastChunkOfAStepIsCutWhileOthersWait) {
  Scheduler s({.n_pages = 8, .max_batch_tokens = 10, .max_sequences = 2, .max_model_len = 32, .token_unit = 4});
  step(s);
  s.commit(events(0, {request(1, 3, 9), request(2, 4, 9), request(3, 5, 9)}));
  EXPECT_EQ(step(s), "100 101 102 @0 [0] >s0#0 | 200 @0 [1]") << "2 ends the step, since there is no third slot";
  s.commit(events(1, {}, {{1, 7}}));
  EXPECT_EQ(step(s), "7 @3 [0] >s0#1 | 201 202 203 @1 [1] >s1#0");
  s.commit(events(2, {}, {{1, 8, kFinished}, {2, 17}}));
  EXPECT_EQ(step(s), "17 @4 [1] >s1#1 | 300 301 302 303 304 @0 [0] >s0#0") << "nobody waits: 6 tokens";
}

TEST(TokenUnit, ALongPromptGoesByWholeUnits) {
  Scheduler s({.n_pages = 8, .max_batch_tokens = 10, .max_sequences = 2, .max_model_len = 32, .token_unit = 4});
  step(s);
  s.commit(events(0, {request(1, 21, 9)}));
  EXPECT_EQ(step(s), "100 101 102 103 104 105 106 107 @0 [0]") << "not 10: the rest is to come anyway";
  s.commit(events(1, {}));
  EXPECT_EQ(step(s), "108 109 110 111 112 113 114 115 @8 [0]");
  s.commit(events(2, {}));
  EXPECT_EQ(step(s), "116 117 118 119 120 @16 [0 1] >s0#0");
}

TEST(TokenUnit, AnAdmissionWaitsForTheRestOfAChunk) {
  Scheduler s({.n_pages = 3, .max_batch_tokens = 64, .max_sequences = 4, .max_model_len = 48, .token_unit = 16});
  step(s);
  s.commit(events(0, {request(1, 18, 1), request(2, 30, 1), request(3, 1, 1)}));
  EXPECT_EQ(s.schedule().n_tokens(), 16) << "no pages for 2, so 1 ends the step";
  s.check_integrity();
  s.commit(events(1, {}));
  EXPECT_EQ(step(s), "116 117 @16 [0 1] >s0#0") << "2 stays the next, though 3 would fit";
  s.commit(events(2, {}, {{1, 7, kFinished}}));
  EXPECT_EQ(s.schedule().n_seqs(), 2);
}

TEST(TokenUnit, AtLeastATokenIsComputedAndAtLeastAUnit) {
  Scheduler s({.n_pages = 8, .max_batch_tokens = 64, .max_sequences = 3, .max_model_len = 16, .token_unit = 2});
  step(s);
  s.commit(events(0, {request(1, 1, 9), request(2, 1, 9), request(3, 1, 9), request(4, 1, 9)}));
  EXPECT_EQ(step(s), "100 @0 [0] >s0#0 | 200 @0 [1] >s1#0 | 300 @0 [2] >s2#0");

  Scheduler small({.n_pages = 8, .max_batch_tokens = 64, .max_sequences = 1, .max_model_len = 16, .token_unit = 4});
  step(small);
  small.commit(events(0, {request(1, 3, 9), request(2, 1, 9)}));
  EXPECT_EQ(step(small), "100 101 102 @0 [0] >s0#0");
}

TEST(TokenUnit, AnAdmissionThatFitsByTheChunksOwnPagesFollowsIt) {
  const auto same = [](RequestId id) {
    Request r = request(1, 33, 1);
    r.id = id;
    return r;
  };
  SchedulerOptions o{.n_pages = 4, .max_batch_tokens = 64, .max_sequences = 4, .max_model_len = 48};
  o.token_unit = 16;
  for (const bool cache : {true, false}) {
    o.prefix_cache = cache;
    Scheduler s(o);
    step(s);
    s.commit(events(0, {same(1), same(2), same(3)}));
    const StepBatch b = s.schedule();
    s.check_integrity();
    if (cache)
      EXPECT_THAT(b.q_offsets, ElementsAre(0, 33, 34)) << "2 finds two of 1's pages, which it takes whole";
    else
      EXPECT_THAT(b.q_offsets, ElementsAre(0, 32));
  }
}

TEST(TokenUnit, AnAdmissionThatFitsByAnotherSequencesPagesFollows) {
  SchedulerOptions o{.n_pages = 6, .max_batch_tokens = 64, .max_sequences = 4, .max_model_len = 48, .prefix_cache = true};
  o.token_unit = 16;
  Scheduler s(o);
  Request like_1 = request(1, 33, 1);
  like_1.id = 3;
  step(s);
  s.commit(events(0, {request(1, 33, 2)}));
  step(s);
  s.commit(events(1, {request(2, 17, 1), like_1}, {{1, 7}}));
  EXPECT_THAT(s.schedule().q_offsets, ElementsAre(0, 1, 18, 19)) << "one page is free beside 2: it is all that 3 needs";
  s.check_integrity();
}

TEST(TokenUnit, AChunkBehindACachedPrefixIsCut) {
  SchedulerOptions o{.n_pages = 16, .max_batch_tokens = 99, .max_sequences = 2, .max_model_len = 99, .prefix_cache = true};
  o.token_unit = 32;
  Scheduler s(o);
  Request a = request(1, 60, 9), b = a, c = a;
  b.id = 2, c.id = 3;
  step(s);
  s.commit(events(0, {a, b, c}));
  EXPECT_THAT(s.schedule().q_offsets, ElementsAre(0, 60, 64)) << "b finds 48 tokens, 12 are left, 8 are cut";
  s.check_integrity();
  s.commit(events(1, {}, {{1, 7, kFinished}}));
  const StepBatch next = s.schedule();
  s.check_integrity();
  EXPECT_THAT(next.q_offsets, ElementsAre(0, 8, 20)) << "the rest of b; c finds the same 48 tokens";
  EXPECT_THAT(next.kv_lengths, ElementsAre(60, 60));
}

}  // namespace
}  // namespace lockstep
