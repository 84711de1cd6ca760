// Which replica gets which line when: every line once, beginnings that agree together, the costliest first.
#include "engine/work.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <utility>

#include "base/error.h"
#include "comm/thread_comm.h"
#include "engine/waiting.h"
#include "engine/work_order.h"

namespace lockstep {
namespace {

using testing::ElementsAre;

// A line whose beginnings are letters: "abbc" agrees with "abxy" in the first two.
InputLine line(const std::string& beginnings, uint32_t cost) {
  InputLine l{.cost = cost};
  for (size_t k = 0; k < 4; ++k) l.beginnings[k] = static_cast<uint32_t>(beginnings[k]);
  return l;
}
std::vector<uint32_t> all_of(const std::vector<InputLine>& lines) {
  std::vector<uint32_t> order(lines.size());
  std::iota(order.begin(), order.end(), 0u);
  return order;
}
std::vector<uint32_t> ordered(const std::vector<InputLine>& lines) {
  std::vector<uint32_t> order = all_of(lines);
  order_for_prefixes(lines, order);
  return order;
}

TEST(WorkOrder, TheCostliestFirstWhereNothingIsShared) {
  EXPECT_THAT(ordered({line("aaaa", 5), line("bbbb", 9), line("cccc", 7)}), ElementsAre(1, 2, 0));
}

TEST(WorkOrder, GroupsStayWholeAtEveryLevel) {
  // Group a has the costliest line, so all of a comes first; in it the pair "ax" (8 and 1) before the single "ay" (7).
  EXPECT_THAT(ordered({line("axpp", 1), line("bbbb", 9), line("ayqq", 7), line("axpr", 8), line("azzz", 10)}),
              ElementsAre(4, 3, 0, 2, 1));
}

TEST(WorkOrder, OnlyWhatIsStillToRun) {
  const std::vector<InputLine> lines = {line("aaaa", 1), line("bbbb", 2), line("cccc", 3)};
  std::vector<uint32_t> order = {0, 2};
  order_for_prefixes(lines, order);
  EXPECT_THAT(order, ElementsAre(2, 0));
}

// Lines that ask for n answers of max_tokens each.
InputLine answers(uint32_t n, uint32_t max_tokens) { return {.n_answers = n, .max_tokens = max_tokens}; }

TEST(EvenSequences, LastAsLongAsTheLongest) {
  const auto n = [](const std::vector<InputLine>& lines, int64_t n_replicas = 1) {
    return even_sequences(lines, all_of(lines), n_replicas);
  };
  EXPECT_EQ(n(std::vector(512, answers(1, 1000))), 512) << "equal lines: all at once";
  EXPECT_EQ(n(std::vector(512, answers(1, 1000)), 4), 128);
  EXPECT_EQ(n(std::vector(513, answers(1, 1000)), 4), 129);
  EXPECT_EQ(n({answers(1, 1000), answers(1, 400), answers(1, 600)}), 2) << "the two short ones one after the other";
  EXPECT_EQ(n({answers(1, 1000), answers(1, 401), answers(1, 600)}), 3);
  std::vector<InputLine> lines(300, answers(1, 10));
  lines.push_back(answers(1, 1000));
  EXPECT_EQ(n(lines), 4) << "1000 steps for the long one, 3000 tokens beside it";
  EXPECT_EQ(n({answers(8, 100), answers(1, 50)}), 9) << "n choices are n sequences";
  EXPECT_EQ(n(std::vector(7, answers(1, 0))), 7) << "only scored: a step each";
  EXPECT_EQ(n({answers(1, 10), answers(0, 1 << 20)}), 1) << "no request, so nothing to wait for";
}

TEST(EvenSequences, OnlyWhatIsStillToRun) {
  const std::vector<InputLine> lines = {answers(1, 1000), answers(1, 10), answers(1, 10)};
  EXPECT_EQ(even_sequences(lines, std::vector<uint32_t>{1, 2}, 1), 2);
  EXPECT_EQ(even_sequences(lines, {}, 1), 0);
  EXPECT_EQ(even_sequences({}, {}, 9), 0);
}

TEST(EvenSequences, HugeNumbers) {
  constexpr uint32_t kMost = UINT32_MAX;
  const std::vector<InputLine> lines(5, answers(kMost, kMost));
  EXPECT_EQ(even_sequences(lines, std::vector<uint32_t>{0}, 1), int64_t{kMost});
  EXPECT_EQ(even_sequences(lines, all_of(lines), 1), int64_t{kMost} + 2) << "the sum stops at 2^64 - 1, it doesn't begin anew";
  EXPECT_EQ(even_sequences(lines, all_of(lines), INT64_MAX), 1);
  EXPECT_THROW(even_sequences(lines, all_of(lines), 0), Error);
}

// What each replica is dealt, as lines.
std::vector<std::vector<uint32_t>> dealt(const std::vector<InputLine>& lines, size_t n) {
  std::vector<uint32_t> order = ordered(lines);
  std::vector<std::vector<uint32_t>> hands;
  size_t begin = 0;
  for (const size_t end : deal_work(lines, order, n)) {
    hands.emplace_back(order.begin() + static_cast<ptrdiff_t>(begin), order.begin() + static_cast<ptrdiff_t>(end));
    begin = end;
  }
  EXPECT_EQ(begin, lines.size());
  return hands;
}

TEST(DealWork, LongAndShortToEach) {
  std::vector<InputLine> lines;
  for (const uint32_t cost : {1, 9, 8, 1, 1, 7, 6, 1})
    lines.push_back(line({static_cast<char>(lines.size()), 'b', 'c', 'd'}, cost));
  EXPECT_THAT(dealt(lines, 2), ElementsAre(ElementsAre(1, 6, 0, 4), ElementsAre(2, 5, 3, 7)));
  EXPECT_THAT(dealt(lines, 1), ElementsAre(ElementsAre(1, 2, 5, 6, 0, 3, 4, 7)));
  EXPECT_THAT(dealt({}, 2), ElementsAre(ElementsAre(), ElementsAre()));
  EXPECT_THROW(dealt(lines, 0), Error);
}

TEST(DealWork, WhatBeginsAlikeStaysTogetherUnlessItIsMuch) {
  std::vector<InputLine> lines;
  for (int i = 0; i < 24; ++i) lines.push_back(line({static_cast<char>('a' + i % 12), 'x', 'x', static_cast<char>(i)}, 10));
  for (const auto& hand : dealt(lines, 2)) {
    ASSERT_EQ(hand.size(), 12u);
    for (size_t i = 0; i < hand.size(); i += 2) EXPECT_EQ(hand[i] + 12, hand[i + 1]) << "both of a group";
  }
  // All begin alike, at first: by their longer beginnings, whole. Then all the way: by lines.
  for (InputLine& l : lines) l.beginnings[1] = std::exchange(l.beginnings[0], 'a');
  for (const auto& hand : dealt(lines, 2)) {
    ASSERT_EQ(hand.size(), 12u);
    for (size_t i = 0; i < hand.size(); i += 2) EXPECT_EQ(hand[i] + 12, hand[i + 1]);
  }
  for (InputLine& l : lines) l.beginnings = {1, 2, 3, 4};
  for (const auto& hand : dealt(lines, 3)) EXPECT_EQ(hand.size(), 8u);
}

TEST(DealWork, SharesDifferByOnePieceAtMost) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<InputLine> lines;
    const size_t n_replicas = 1 + random() % 6;
    for (size_t i = 0, n = random() % 300; i < n; ++i) {
      lines.push_back(line("aaaa", static_cast<uint32_t>(random() % 50)));
      for (auto& b : lines.back().beginnings) b = static_cast<uint32_t>(random() % 3);
    }
    const uint64_t share = cost_of(lines, all_of(lines)) / n_replicas;
    std::set<uint32_t> seen;
    for (const auto& hand : dealt(lines, n_replicas)) {
      seen.insert(hand.begin(), hand.end());
      EXPECT_LE(cost_of(lines, hand), share + std::max<uint64_t>(share / 4, 50));
    }
    EXPECT_EQ(seen.size(), lines.size());
  }
}

TEST(WorkOrder, ACutMovesToTheNearestBorderOfGroups) {
  std::vector<InputLine> lines;
  for (int i = 0; i < 16; ++i) lines.push_back(line(i < 9 ? "aaaa" : "bbbb", 9));
  const auto order = all_of(lines);
  EXPECT_EQ(cut_work(lines, order, 0, 16, 80).at, 9u) << "8 lines are half; the border is one further";
  EXPECT_EQ(cut_work(lines, order, 0, 16, 80).cost, 90u);
  EXPECT_EQ(cut_work(lines, order, 0, 16, 40).at, 4u) << "no border within two lines";
  EXPECT_EQ(cut_work(lines, order, 15, 16, 5).at, 15u) << "a single line goes to the taker";
}

using Ranges = std::map<int, std::vector<int64_t>>;  // replica -> lines, in order

Ranges take_all(WorkServer& server, int n_replicas, uint64_t seed) {
  std::mt19937_64 random(seed);
  Ranges taken;
  std::set<int> asking;
  for (int r = 0; r < n_replicas; ++r) asking.insert(r);
  while (!asking.empty()) {
    const int r = *std::next(asking.begin(), static_cast<ptrdiff_t>(random() % asking.size()));
    const auto range = server.next_range(r);
    if (range.empty()) asking.erase(r);
    for (const InputLine& l : range) taken[r].push_back(l.line);
  }
  return taken;
}

TEST(WorkServer, EveryLineOnceWhoeverAsks) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<InputLine> lines;
    const int n = static_cast<int>(random() % 300), n_replicas = 1 + static_cast<int>(random() % 6);
    for (int i = 0; i < n; ++i) {
      lines.push_back(line("aaaa", static_cast<uint32_t>(random() % 50)));
      for (auto& b : lines.back().beginnings) b = static_cast<uint32_t>(random() % 3);
      lines.back().line = i;
    }
    WorkServer server(lines, all_of(lines), std::vector<int>(static_cast<size_t>(n_replicas), 0));
    std::multiset<int64_t> seen;
    for (const auto& [r, taken] : take_all(server, n_replicas, random())) seen.insert(taken.begin(), taken.end());
    ASSERT_EQ(seen.size(), static_cast<size_t>(n));
    for (int i = 0; i < n; ++i) ASSERT_EQ(seen.count(i), 1u);
    EXPECT_TRUE(server.finished());
  }
}

TEST(WorkServer, AGroupGoesToOneReplica) {
  std::vector<InputLine> lines;
  for (int i = 0; i < 120; ++i) {
    const char group = static_cast<char>('a' + i % 12);
    lines.push_back(line({group, group, group, static_cast<char>('A' + i)}, 100));
    lines.back().line = group;
  }
  WorkServer server(lines, all_of(lines), {0, 1});
  // Both at the same speed: ranges in turn.
  Ranges taken;
  for (bool more = true; more;) {
    more = false;
    for (int r = 0; r < 2; ++r)
      for (const InputLine& l : server.next_range(r)) taken[r].push_back(l.line), more = true;
  }
  std::map<int64_t, std::set<int>> replicas_of;
  for (const auto& [r, groups] : taken)
    for (const int64_t group : groups) replicas_of[group].insert(r);
  int n_split = 0;
  for (const auto& [group, replicas] : replicas_of) n_split += replicas.size() > 1;
  EXPECT_LE(n_split, 1);
  EXPECT_EQ(taken[0].size() + taken[1].size(), 120u);
  EXPECT_EQ(taken[0].size(), 60u);
}

TEST(WorkServer, AnIdleReplicaTakesHalfOfWhatASlowOneHasLeft) {
  std::vector<InputLine> lines;
  for (int i = 0; i < 64; ++i) lines.push_back(line({static_cast<char>(i), 'b', 'c', 'd'}, 9));
  WorkServer server(lines, all_of(lines), {0, 1});
  size_t n = server.next_range(1).size();
  EXPECT_EQ(n, 16u) << "half of its 32";
  size_t first = 16;
  for (auto range = server.next_range(0); !range.empty(); range = server.next_range(0)) first += range.size();
  EXPECT_EQ(first, 64u) << "all that replica 1 didn't take, of its own stretch too";
  EXPECT_TRUE(server.next_range(1).empty());
}

TEST(Waiting, AsManyAsTheNextStepsWillBegin) {
  Waiting waiting(1);  // five steps' worth
  EXPECT_EQ(waiting.room(), 8u);
  for (RequestId id = 0; id < 8; ++id) waiting.add(id);
  EXPECT_EQ(waiting.room(), 0u);
  waiting.end_step(0);
  EXPECT_EQ(waiting.room(), 0u) << "nothing has begun";
  waiting.has_outcome(5);
  waiting.end_step(0);
  EXPECT_EQ(waiting.room(), 28u) << "five times six, but for the two that wait";
  for (RequestId id = 8; id < 36; ++id) waiting.add(id);
  waiting.has_outcome(2);  // another token of one that has begun
  waiting.end_step(0);
  EXPECT_EQ(waiting.room(), 0u);
  waiting.has_outcome(35);
  waiting.end_step(0);
  EXPECT_EQ(waiting.room(), 150u) << "30 began at once";
  for (int step = 0; step < 40; ++step) waiting.end_step(0);
  EXPECT_EQ(waiting.room(), 75u) << "long ago";
}

// Two replicas, each of one speed in lines begun a step; outcomes come two steps later, and a line lasts `life` steps in one of
// `slots`.
struct Race {
  int per_step[2];
  int first_step[2] = {0, 0};
  size_t slots = 1 << 20;
  int life = 2;
};
struct Outcome {
  int first, second;  // steps of each until it has begun its last line
  RequestId n_first, n_second;
};
Outcome outcome_of(const Race& race, int n_lines) {
  const auto world = make_thread_comms(2);
  std::vector<InputLine> lines;
  for (int i = 0; i < n_lines; ++i) lines.push_back(line({static_cast<char>(i), static_cast<char>(i / 256), 'c', 'd'}, 9));
  WorkServer server(lines, all_of(lines), {0, 1});
  struct Replica {
    WorkClient client;
    Waiting waiting{1};
    std::deque<RequestId> admitted, begun[2];  // begun: in the steps in flight
    std::deque<int> ends;                      // of those that have begun
    RequestId next_id = 0;
    int end = -1;
  };
  std::vector<Replica> replicas;
  replicas.push_back({.client = {*world[0], &server, 0}});
  replicas.push_back({.client = {*world[1], nullptr, 1}});
  for (int step = 0; replicas[0].end < 0 || replicas[1].end < 0; ++step) {
    for (int r = 0; r < 2; ++r) {
      Replica& x = replicas[static_cast<size_t>(r)];
      if (step < race.first_step[r] || x.end >= 0) continue;
      for (const RequestId id : x.begun[0]) x.waiting.has_outcome(id);
      size_t n_finished = 0;
      for (; !x.ends.empty() && x.ends.front() <= step; ++n_finished) x.ends.pop_front();
      x.waiting.end_step(n_finished);
      x.begun[0] = std::exchange(x.begun[1], {});
      const auto n_free = [&] {
        const size_t most = race.slots + x.waiting.finishing(), n_open = x.admitted.size() + x.ends.size();
        return std::min(x.waiting.room(), most > n_open ? most - n_open : 0);
      };
      x.client.poll(n_free());
      while (n_free() > 0 && x.client.take()) x.waiting.add(x.next_id), x.admitted.push_back(x.next_id++);
      for (int n = 0; n < race.per_step[r] && !x.admitted.empty() && x.ends.size() < race.slots; ++n, x.admitted.pop_front())
        x.begun[1].push_back(x.admitted.front()), x.ends.push_back(step + race.life);
      if (x.client.drained() && x.admitted.empty()) x.end = step;
    }
    server.poll(*world[0]);
  }
  return {replicas[0].end, replicas[1].end, replicas[0].next_id, replicas[1].next_id};
}

TEST(Waiting, ReplicasEndTogether) {
  const auto expect_together = [](const Race& race, int n_lines, int n_steps) {
    const auto [first, second, n_first, n_second] = outcome_of(race, n_lines);
    EXPECT_EQ(n_first + n_second, n_lines);
    EXPECT_NEAR(first, second, 3) << "rank 0's " << race.per_step[0] << " a step, the other's " << race.per_step[1];
    EXPECT_NEAR(std::max(first, second), n_steps, 8);
  };
  expect_together({{8, 8}}, 1024, 64);
  expect_together({{8, 8}, {0, 20}}, 1024, 74);
  expect_together({{8, 4}}, 1024, 85);
  expect_together({{4, 8}}, 1024, 85);
  expect_together({{1, 1}}, 200, 100);
}

// Lines that outlive all others' beginnings: who comes late still finds as many as it has slots.
TEST(Waiting, NobodyTakesWhatItHasNoSlotFor) {
  const Outcome outcome = outcome_of({.per_step = {4, 4}, .first_step = {0, 20}, .slots = 64, .life = 500}, 128);
  EXPECT_EQ(outcome.n_first, 64);
  EXPECT_EQ(outcome.n_second, 64);
}

// Where lines come and go, those that are about to follow are here.
TEST(Waiting, SlotsDoNotStayEmpty) {
  const Outcome outcome = outcome_of({.per_step = {8, 8}, .slots = 60, .life = 20}, 1200);  // three a step
  EXPECT_NEAR(outcome.first, outcome.second, 20) << "a line's life";
  EXPECT_NEAR(std::max(outcome.first, outcome.second), 200, 20);
}

TEST(WorkServer, KnowsWhetherTheOthersHaveAsked) {
  const auto world = make_thread_comms(2);
  const std::vector<InputLine> lines = {line("aaaa", 1), line("bbbb", 2), line("cccc", 3)};
  WorkServer alone(lines, all_of(lines), {0}), server(lines, all_of(lines), {0, 1});
  EXPECT_TRUE(alone.others_have_asked(0));
  EXPECT_FALSE(server.others_have_asked(0));
  WorkClient(*world[0], &server, 0).poll(1);
  EXPECT_FALSE(server.others_have_asked(0)) << "it doesn't count for itself";
  WorkClient other(*world[1], nullptr, 1);
  other.poll(1);
  server.poll(*world[0]);
  EXPECT_TRUE(server.others_have_asked(0));
  other.poll(1);
  EXPECT_TRUE(other.take().has_value());
}

// Ranks 0 and 1 are roots, rank 2 is none. Whichever of them gets the signal, both roots stop.
TEST(WorkStop, AnyRankStopsAll) {
  for (int told = 0; told < 3; ++told) {
    const auto world = make_thread_comms(3);
    const std::vector<InputLine> lines = {line("aaaa", 1), line("bbbb", 2)};
    WorkServer server(lines, all_of(lines), {0, 1});
    WorkClient first(*world[0], &server, 0), second(*world[1], nullptr, 1);
    EXPECT_FALSE(first.stop_received() || second.stop_received());
    if (told == 0) first.announce_stop();
    if (told == 1) second.announce_stop();
    if (told == 2) ask_to_stop(*world[2]);
    server.poll(*world[0]);
    second.poll(1);
    EXPECT_TRUE(first.stop_received()) << "signal at rank " << told;
    EXPECT_TRUE(second.stop_received()) << "signal at rank " << told;
    EXPECT_TRUE(server.finished());
  }
}

}  // namespace
}  // namespace lockstep
