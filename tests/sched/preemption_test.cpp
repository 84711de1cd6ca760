// When pages run out: who waits, who makes room, and how it comes back. describe.h says how to read a step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "sched/describe.h"
#include "sched/scheduler.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Preemption, TheYoungestThatFindsNoPageWaits) {
  // Three pages of 16. 1 needs its second page when its 17th token comes, and so does 2.
  Scheduler s({.n_pages = 3, .max_batch_tokens = 64, .max_sequences = 4, .max_model_len = 48});
  step(s);
  s.commit(events(0, {request(1, 15, 9)}));
  step(s);  // computes 0 .. 14
  s.commit(events(1, {request(2, 15, 9)}, {{1, 11}}));
  EXPECT_THAT(step(s), HasSubstr("11 @15 [0] >s0#1 | 200 "));
  s.commit(events(2, {}, {{1, 12}, {2, 21}}));
  EXPECT_EQ(step(s), "12 @16 [0 2] >s0#2 | 21 @15 [1] >s1#1");
  s.commit(events(3, {}, {{1, 13}, {2, 22}}));
  EXPECT_EQ(s.n_pages_used(), 3);
  EXPECT_EQ(step(s), "13 @17 [0 2] >s0#3") << "2 is the youngest and finds no page: it waits, and keeps what it has";
  EXPECT_EQ(s.n_preempted(), 0);
  s.commit(events(4, {}, {{1, 14, kFinished}}));
  EXPECT_EQ(step(s), "22 @16 [1 0] >s1#2");
}

TEST(Preemption, AnAdmissionLeavesAPageForEachRunningSequenceThatMayGrow) {
  Scheduler s({.n_pages = 2, .max_batch_tokens = 64, .max_sequences = 4, .max_model_len = 32});
  step(s);
  s.commit(events(0, {request(1, 1, 16)}));
  EXPECT_EQ(step(s), "100 @0 [0] >s0#0");
  s.commit(events(1, {request(2, 1, 16)}, {{1, 11}}));
  EXPECT_EQ(step(s), "11 @1 [0] >s0#1 | 200 @0 [1] >s1#0") << "1 computes 1 + 16 - 1 tokens: one page is all it needs";

  Scheduler other({.n_pages = 2, .max_batch_tokens = 64, .max_sequences = 4, .max_model_len = 32});
  step(other);
  other.commit(events(0, {request(1, 1, 17), request(2, 1, 16)}));
  EXPECT_EQ(step(other), "100 @0 [0] >s0#0") << "1 may need the other page";
  other.commit(events(1, {}, {{1, 11, kFinished}}));
  EXPECT_EQ(step(other), "200 @0 [0] >s0#0") << "nothing runs: no reserve";
}

TEST(Preemption, APreemptedSequenceComesBackWithItsTokensAndItsPosition) {
  // Four pages. At step 4 request 1 has 16 tokens and needs a page; 2 holds the other three and is thrown out.
  Scheduler s({.n_pages = 4, .max_batch_tokens = 64, .max_sequences = 2, .max_model_len = 64});
  step(s);
  s.commit(events(0, {request(1, 14, 20), request(2, 31, 20)}));
  EXPECT_THAT(s.schedule().pages, ElementsAre(0, 1, 2));
  s.commit(events(1, {}, {{1, 11}, {2, 21}}));
  EXPECT_EQ(step(s), "11 @14 [0] >s0#1 | 21 @31 [1 2] >s1#1");
  s.commit(events(2, {}, {{1, 12}, {2, 22}}));
  EXPECT_EQ(step(s), "12 @15 [0] >s0#2 | 22 @32 [1 2 3] >s1#2");
  s.commit(events(3, {request(3, 1, 1)}, {{1, 13}, {2, 23}}));
  EXPECT_EQ(step(s), "13 @16 [0 1] >s0#3");
  EXPECT_EQ(s.n_preempted(), 1);
  EXPECT_EQ(s.n_running(), 1);
  EXPECT_EQ(s.n_waiting(), 2) << "3 doesn't overtake 2";
  s.commit(events(4, {}, {{1, 14, kFinished}}));
  const StepBatch again = s.schedule();  // its 31 prompt tokens and 3 generated ones, then the sample that was due
  s.check_integrity();
  EXPECT_THAT(again.kv_lengths, ElementsAre(34));
  EXPECT_THAT(again.pages, ElementsAre(0, 1, 2));
  EXPECT_EQ(again.token_ids[30], 230);
  EXPECT_EQ(again.token_ids[31], 21);
  EXPECT_EQ(again.token_ids[32], 22);
  EXPECT_EQ(again.token_ids[33], 23);
  ASSERT_EQ(again.samples.size(), 1u);
  EXPECT_EQ(again.samples[0].request, 2);
  EXPECT_EQ(again.samples[0].row, 33);
  EXPECT_EQ(again.samples[0].position, 3);
}

// The same with pages on the host for what 2 has computed.
TEST(Preemption, APreemptedSequenceKeepsItsKvOnTheHost) {
  Scheduler s({.n_pages = 4, .max_batch_tokens = 64, .max_sequences = 2, .max_model_len = 64, .n_host_pages = 3});
  step(s);
  s.commit(events(0, {request(1, 14, 20), request(2, 31, 20)}));
  step(s);
  s.commit(events(1, {}, {{1, 11}, {2, 21}}));
  step(s);
  s.commit(events(2, {}, {{1, 12}, {2, 22}}));
  EXPECT_EQ(step(s), "12 @15 [0] >s0#2 | 22 @32 [1 2 3] >s1#2");
  s.commit(events(3, {request(3, 1, 1)}, {{1, 13}, {2, 23}}));
  EXPECT_EQ(step(s), "save 1>0 2>1 3>2 | 13 @16 [0 1] >s0#3");
  EXPECT_EQ(s.n_preempted(), 1);
  EXPECT_EQ(s.n_host_pages_used(), 3);
  s.commit(events(4, {}, {{1, 14}}));
  EXPECT_EQ(step(s), "14 @17 [0 1] >s0#4") << "three pages aren't free";
  s.commit(events(5, {}, {{1, 15, kFinished}}));
  EXPECT_EQ(step(s), "restore 0<0 1<1 2<2 | 23 @33 [0 1 2] >s0#3");
  EXPECT_EQ(s.n_host_pages_used(), 0);
}

TEST(Preemption, WithTooFewPagesOnTheHostItIsComputedAgain) {
  Scheduler s({.n_pages = 4, .max_batch_tokens = 64, .max_sequences = 2, .max_model_len = 64, .n_host_pages = 2});
  three_tokens_each(s, {request(1, 14, 20), request(2, 31, 20)});
  EXPECT_EQ(step(s), "13 @16 [0 1] >s0#3");
  s.commit(events(4, {}, {{1, 14, kFinished}}));
  EXPECT_THAT(step(s), HasSubstr(" 230 21 22 23 @0 [0 1 2] >s0#3"));
}

// Two prompts, a token of each a step. At step 49 request 1 needs its fourth page of five, and 2, which has waited for its
// third one since step 33, is thrown out in the midst of its prompt, which is scored.
TEST(Preemption, APromptOnTheHostIsScoredOnce) {
  Scheduler s({.n_pages = 5, .max_batch_tokens = 2, .max_sequences = 2, .max_model_len = 64, .n_host_pages = 9});
  step(s);
  Request scored = request(2, 40, 1);
  scored.sampling.prompt_logprobs = true;
  s.commit(events(0, {request(1, 1, 60), scored}));
  std::vector<int32_t> positions;
  for (int k = 1; k < 49; ++k) {
    for (const ScoreRow& row : s.schedule().scores) positions.push_back(row.position);
    s.check_integrity();
    s.commit(events(k, {}, {{1, 1000 + k}}));
  }
  EXPECT_EQ(positions.size(), 32u);
  EXPECT_EQ(step(s), "save 1>0 3>1 | 1048 @48 [0 2 4 1] >s0#48");
  s.commit(events(49, {}, {{1, 7, kFinished}}));
  for (int k = 50; k < 54; ++k) {
    const StepBatch b = s.schedule();
    s.check_integrity();
    EXPECT_EQ(b.n_tokens(), 2);
    EXPECT_EQ(b.restored.size(), k == 50 ? 2u : 0u);
    for (const ScoreRow& row : b.scores) positions.push_back(row.position);
    s.commit(events(k, {}, k == 53 ? Sampled{{2, 7, kFinished}} : Sampled{}));
  }
  std::vector<int32_t> expected(39);
  std::iota(expected.begin(), expected.end(), 1);
  EXPECT_EQ(positions, expected);
}

// The same with lag 2, where 2 has two samples under way when it is thrown out.
TEST(Preemption, APreemptedSequenceWaitsForItsTokens) {
  Scheduler s({.n_pages = 4, .max_batch_tokens = 64, .max_sequences = 2, .max_model_len = 64, .lag = 2});
  for (int k = 0; k < 3; ++k) step(s);
  s.commit(events(0, {request(1, 14, 20), request(2, 31, 20)}));
  EXPECT_EQ(s.schedule().n_seqs(), 2);
  s.commit(events(1, {}));
  EXPECT_EQ(step(s), "<s0 @14 [0] >s0#1 | <s1 @31 [1 2] >s1#1");
  s.commit(events(2, {}));
  EXPECT_EQ(step(s), "<s0 @15 [0] >s0#2 | <s1 @32 [1 2 3] >s1#2");
  s.commit(events(3, {}, {{1, 11}, {2, 21}}));
  EXPECT_EQ(step(s), "<s0 @16 [0 1] >s0#3");
  EXPECT_EQ(s.n_preempted(), 1);
  s.commit(events(4, {}, {{1, 12, kFinished}, {2, 22}}));  // a sampled token still reaches the preempted sequence
  EXPECT_EQ(s.n_pages_used(), 0);
  EXPECT_EQ(step(s), "") << "all pages are free, but step 5's token of 2 isn't known yet";
  s.commit(events(5, {}, {{2, 23}}));
  const StepBatch again = s.schedule();
  s.check_integrity();
  EXPECT_THAT(again.kv_lengths, ElementsAre(34));
  EXPECT_EQ(again.token_ids[33], 23);
  ASSERT_EQ(again.samples.size(), 1u);
  EXPECT_EQ(again.samples[0].position, 3);
  EXPECT_EQ(again.samples[0].slot, 1) << "free since step 5 was committed; slot 0 is held by step 6";
}

TEST(Preemption, APreemptedSequenceMayTurnOutFinished) {
  Scheduler s({.n_pages = 4, .max_batch_tokens = 64, .max_sequences = 2, .max_model_len = 64, .lag = 1, .n_host_pages = 3});
  for (int k = 0; k < 2; ++k) step(s);
  s.commit(events(0, {request(1, 14, 20), request(2, 31, 20)}));
  step(s);
  s.commit(events(1, {request(3, 1, 1)}));
  step(s);
  s.commit(events(2, {}, {{1, 11}, {2, 21}}));
  step(s);
  s.commit(events(3, {}, {{1, 12}, {2, 22}}));
  EXPECT_EQ(step(s), "save 1>0 2>1 3>2 | <s0 @16 [0 1] >s0#3");
  EXPECT_EQ(s.n_waiting(), 2);
  s.commit(events(4, {}, {{1, 13}, {2, 23, kFinished}}));
  EXPECT_EQ(s.n_waiting(), 1);
  EXPECT_EQ(s.n_host_pages_used(), 0);
  EXPECT_EQ(step(s), "<s0 @17 [0 1] >s0#4 | 300 @0 [2] >s1#0");
}

// Ten pages. In step 19 the three oldest reach their 33rd token, and the two youngest, of two pages each, make room.
TEST(Preemption, OfTwoPreemptedSequencesTheYoungerMayFinishFirst) {
  Scheduler s({.n_pages = 10, .max_batch_tokens = 99, .max_sequences = 5, .max_model_len = 96, .lag = 1});
  for (int k = 0; k < 2; ++k) step(s);
  s.commit(events(0, {request(1, 16, 80), request(2, 16, 80), request(3, 16, 80), request(4, 8, 80), request(5, 8, 80)}));
  EXPECT_EQ(s.schedule().n_seqs(), 5);
  s.commit(events(1, {}));
  for (int k = 3; k < 20; ++k) {
    EXPECT_EQ(s.n_preempted(), 0);
    s.schedule();
    s.check_integrity();
    Sampled all = {{1, k}, {2, k}, {3, k}, {4, k}, {5, k, k == 19}};
    s.commit(events(k - 1, {}, all));
  }
  EXPECT_EQ(s.n_preempted(), 2);
  s.check_integrity();
  EXPECT_EQ(s.n_waiting(), 1);
  EXPECT_EQ(s.n_running(), 3);
  EXPECT_EQ(s.schedule().n_seqs(), 3);  // step 20
  s.commit(events(19, {}, {{1, 20, kFinished}, {2, 20, kFinished}, {3, 20, kFinished}}));
  const StepBatch again = s.schedule();  // 4, its prompt and the 17 tokens of steps 2 .. 18
  s.check_integrity();
  ASSERT_EQ(again.samples.size(), 1u);
  EXPECT_EQ(again.samples[0].request, 4);
  EXPECT_EQ(again.samples[0].position, 17);
  EXPECT_THAT(again.kv_lengths, ElementsAre(25));
  EXPECT_EQ(again.token_ids[8], 3);
  EXPECT_EQ(again.token_ids[24], 19);
}

}  // namespace
}  // namespace lockstep
