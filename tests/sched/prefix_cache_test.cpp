// Pages found again by what they hold: which, when no more, and what the scheduler makes of them. describe.h says how to read a
// step.
#include "sched/prefix_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "sched/describe.h"
#include "sched/scheduler.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<TokenId> tokens(int n, int first = 0) {
  std::vector<TokenId> out(static_cast<size_t>(n));
  std::iota(out.begin(), out.end(), first);
  return out;
}
std::span<const TokenId> page_of(const std::vector<TokenId>& all, size_t i) {
  return std::span(all).subspan(i * kPageSize, kPageSize);
}

struct Kept {
  explicit Kept(int64_t n_pages) : pool(n_pages), cache(pool) {}
  // All full pages of `text`; gives them back at once.
  std::vector<PageId> keep(const std::vector<TokenId>& text) {
    std::vector<PageRef> pages;
    PrefixCache::Chain chain = PrefixCache::kStart;
    for (size_t i = 0; i < text.size() / kPageSize; ++i) {
      pages.push_back(pool.allocate());
      chain = cache.keep(chain, page_of(text, i), pages[i].id());
    }
    std::vector<PageId> ids;
    for (const PageRef& page : pages) ids.push_back(page.id());
    while (!pages.empty()) pages.pop_back();
    return ids;
  }
  PagePool pool;
  PrefixCache cache;
};

TEST(PrefixCache, FindsTheLongestKnownPrefixInWholePages) {
  Kept k(8);
  EXPECT_THAT(k.keep(tokens(50)), ElementsAre(0, 1, 2));
  EXPECT_THAT(k.cache.find(tokens(48), 9).pages, ElementsAre(0, 1, 2));
  EXPECT_THAT(k.cache.find(tokens(47), 9).pages, ElementsAre(0, 1));
  EXPECT_THAT(k.cache.find(tokens(48), 1).pages, ElementsAre(0));
  EXPECT_THAT(k.cache.find(tokens(15), 9).pages, IsEmpty());
  std::vector<TokenId> other = tokens(48);
  other[20] = 7;
  EXPECT_THAT(k.cache.find(other, 9).pages, ElementsAre(0)) << "page 2 follows another page 1";
  EXPECT_THAT(k.cache.find(tokens(16, 16), 9).pages, IsEmpty()) << "the second page is no first page";
}

TEST(PrefixCache, TheEndsOfPrefixesGoFirstAndTheLongestUnusedBeforeOthers) {
  Kept k(4);
  k.keep(tokens(32));       // pages 0, 1
  k.keep(tokens(32, 500));  // pages 2, 3
  EXPECT_EQ(k.pool.n_free(), 4);
  { const PageRef used = k.pool.take_kept(k.cache.find(tokens(16), 1).pages[0]); }  // page 0 was used just now
  EXPECT_EQ(k.pool.allocate().id(), 1);
  EXPECT_THAT(k.cache.find(tokens(32), 2).pages, ElementsAre(0));
  const PageRef a = k.pool.allocate(), b = k.pool.allocate(), c = k.pool.allocate();
  EXPECT_EQ(a.id(), 1) << "empty pages before kept ones";
  EXPECT_EQ(b.id(), 3) << "the end of the older prefix";
  EXPECT_EQ(c.id(), 2);
  EXPECT_THAT(k.cache.find(tokens(32, 500), 2).pages, IsEmpty());
  EXPECT_THAT(k.cache.find(tokens(32), 2).pages, ElementsAre(0));
  k.pool.check_integrity();
}

TEST(PrefixCache, APageIsFoundByWhatItHoldsNowAlone) {
  Kept k(1);
  k.keep(tokens(16));
  k.keep(tokens(16, 500));
  EXPECT_THAT(k.cache.find(tokens(16), 1).pages, IsEmpty());
  EXPECT_THAT(k.cache.find(tokens(16, 500), 1).pages, ElementsAre(0));
  k.keep(tokens(16));
  EXPECT_THAT(k.cache.find(tokens(16), 1).pages, ElementsAre(0));
  EXPECT_THAT(k.cache.find(tokens(16, 500), 1).pages, IsEmpty());
}

TEST(PrefixCache, TheFirstPageOfAContentStays) {
  Kept k(2);
  const PageRef first = k.pool.allocate(), second = k.pool.allocate();
  const auto chain = k.cache.keep(PrefixCache::kStart, tokens(16), first.id());
  EXPECT_EQ(k.cache.keep(PrefixCache::kStart, tokens(16), second.id()), chain);
  EXPECT_FALSE(k.pool.is_kept(second.id()));
  EXPECT_THAT(k.cache.find(tokens(16), 1).pages, ElementsAre(first.id()));
}

// ---- the scheduler with it ----

SchedulerOptions with_cache(int64_t n_pages) {
  return {.n_pages = n_pages, .max_batch_tokens = 64, .max_sequences = 4, .max_model_len = 48, .prefix_cache = true};
}
Request same(RequestId id, int64_t n_prompt, int32_t max_tokens) {  // prompts that begin alike
  Request r = request(id, n_prompt, max_tokens);
  r.prompt = tokens(static_cast<int>(n_prompt), 100);
  return r;
}

TEST(Prefix, SequencesOfOneStepShareTheirPromptsPages) {
  Scheduler s(with_cache(8));
  step(s);
  s.commit(events(0, {same(1, 33, 9), same(2, 33, 9), same(3, 20, 9)}));
  const StepBatch b = s.schedule();
  s.check_integrity();
  EXPECT_THAT(b.q_offsets, ElementsAre(0, 33, 34, 38));
  EXPECT_THAT(b.kv_lengths, ElementsAre(33, 33, 20));
  EXPECT_THAT(b.pages, ElementsAre(0, 1, 2, 0, 1, 3, 0, 4));
  EXPECT_EQ(s.n_cached(), 32 + 16);
  EXPECT_EQ(s.n_pages_used(), 5);
}

TEST(Prefix, TheLastTokenIsComputedForItsLogits) {
  Scheduler s(with_cache(8));
  step(s);
  s.commit(events(0, {same(1, 32, 9), same(2, 32, 9)}));
  const StepBatch b = s.schedule();
  EXPECT_THAT(b.q_offsets, ElementsAre(0, 32, 48));
  EXPECT_THAT(b.pages, ElementsAre(0, 1, 0, 2));
}

TEST(Prefix, SharedPagesCountOnceWhenAnAdmissionNeedsRoom) {
  Scheduler s(with_cache(4));
  step(s);
  s.commit(events(0, {same(1, 33, 1), same(2, 33, 1), same(3, 33, 1)}));
  EXPECT_EQ(s.schedule().n_seqs(), 2) << "the third finds two pages, and no fourth for its last token";
}

TEST(Prefix, APrefixOutlivesItsSequence) {
  Scheduler s(with_cache(4));
  step(s);
  s.commit(events(0, {same(1, 33, 1)}));
  step(s);
  s.commit(events(1, {same(2, 20, 1)}, {{1, 7, kFinished}}));
  EXPECT_EQ(s.n_pages_used(), 0);
  EXPECT_EQ(step(s), "116 117 118 119 @16 [0 2] >s0#0") << "the empty page 2 before the kept page 1";
}

TEST(Prefix, AScoredPromptIsComputedWhole) {
  Scheduler s(with_cache(8));
  step(s);
  Request scored = same(2, 33, 1);
  scored.sampling.prompt_logprobs = true;
  s.commit(events(0, {same(1, 30, 1), scored, same(3, 34, 1)}));
  const StepBatch b = s.schedule();
  EXPECT_THAT(b.q_offsets, ElementsAre(0, 30, 63, 64)) << "the budget cuts the third, which finds both pages";
  EXPECT_EQ(b.scores.size(), 32u);
  EXPECT_EQ(s.n_cached(), 32);
}

TEST(Prefix, APreemptedSequenceFindsItsOwnPagesAgain) {
  // As in Preemption.APreemptedSequenceComesBack: request 2 is thrown out with 34 tokens, its last page is taken by request 1.
  Scheduler s({.n_pages = 4, .max_batch_tokens = 64, .max_sequences = 2, .max_model_len = 64, .prefix_cache = true});
  three_tokens_each(s, {request(1, 14, 20), request(2, 31, 20)});
  EXPECT_EQ(step(s), "13 @16 [0 3] >s0#3");
  EXPECT_EQ(s.n_preempted(), 1);
  s.commit(events(4, {}, {{1, 14, kFinished}}));
  EXPECT_EQ(step(s), "22 23 @32 [1 2 3] >s0#3");
  EXPECT_EQ(s.n_cached(), 32);
}

// The same with its KV on the host: two pages are still there, the third comes back.
TEST(Prefix, OfWhatIsOnTheHostOnlyTheRestComesBack) {
  SchedulerOptions options{.n_pages = 4, .max_batch_tokens = 64, .max_sequences = 2, .max_model_len = 64, .prefix_cache = true};
  options.n_host_pages = 3;
  Scheduler s(options);
  three_tokens_each(s, {request(1, 14, 20), request(2, 31, 20)});
  EXPECT_EQ(step(s), "save 1>0 2>1 3>2 | 13 @16 [0 3] >s0#3");
  s.commit(events(4, {}, {{1, 14, kFinished}}));
  EXPECT_EQ(step(s), "restore 3<2 | 23 @33 [1 2 3] >s0#3");
  EXPECT_EQ(s.n_cached(), 0) << "it had computed them itself";
}

// Here request 1 goes on until it has all pages, so that all three come back; 3 begins with the same 31 tokens as 2.
TEST(Prefix, APageThatComesBackIsFound) {
  SchedulerOptions options{.n_pages = 4, .max_batch_tokens = 64, .max_sequences = 2, .max_model_len = 64, .prefix_cache = true};
  options.n_host_pages = 3;
  Scheduler s(options);
  Request alike = request(2, 31, 1);
  alike.id = 3;
  three_tokens_each(s, {request(1, 14, 50), request(2, 31, 18), alike});
  for (int k = 4; k < 37; ++k) {
    step(s);
    s.commit(events(k, {}, {{1, 10 + k, k == 36}}));
  }
  const std::string both = step(s);
  EXPECT_THAT(both, testing::StartsWith("restore 1<0 2<1 3<2 | 23 @33 [1 2 3] >s0#3 | 216 217 "));
  EXPECT_THAT(both, testing::EndsWith(" 230 @16 [1 0] >s1#0"));
  EXPECT_EQ(s.n_cached(), 16);
}

}  // namespace
}  // namespace lockstep
