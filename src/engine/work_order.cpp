#include "engine/work_order.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <tuple>

#include "base/error.h"

namespace lockstep {

namespace {

constexpr size_t kLevels = std::tuple_size_v<Beginnings>;

// How many of their beginnings two lines share.
size_t depth(const InputLine& a, const InputLine& b) {
  size_t k = 0;
  while (k < kLevels && a.beginnings[k] == b.beginnings[k]) ++k;
  return k;
}

// Borders of pieces of order[begin, end), whose lines share `level` beginnings.
void cut_pieces(std::span<const InputLine> lines, std::span<const uint32_t> order, size_t begin, size_t end, size_t level,
                uint64_t most, std::vector<size_t>& ends) {
  if (end - begin == 1 || cost_of(lines, order.subspan(begin, end - begin)) <= most) return ends.push_back(end);
  for (size_t next = begin; begin < end; begin = next) {
    if (level < kLevels) {
      while (next < end && depth(lines[order[begin]], lines[order[next]]) > level) ++next;
      cut_pieces(lines, order, begin, next, level + 1, most, ends);
    } else {
      uint64_t cost = 0;
      do cost += work_cost(lines[order[next++]]);
      while (next < end && cost + work_cost(lines[order[next]]) <= most);
      ends.push_back(next);
    }
  }
}

}  // namespace

uint64_t cost_of(std::span<const InputLine> lines, std::span<const uint32_t> order) {
  uint64_t sum = 0;
  for (const uint32_t i : order) sum += work_cost(lines[i]);
  return sum;
}

void order_for_prefixes(std::span<const InputLine> lines, std::vector<uint32_t>& order) {
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return std::tie(lines[a].beginnings, a) < std::tie(lines[b].beginnings, b); });
  struct Entry {
    uint32_t line;
    std::array<uint32_t, kLevels> costliest;  // of its group at each level
  };
  std::vector<Entry> entries(order.size());
  for (size_t i = 0; i < order.size(); ++i) entries[i].line = order[i];
  for (size_t level = 0; level < kLevels; ++level)
    for (size_t begin = 0, end = 0; begin < entries.size(); begin = end) {
      uint32_t most = 0;
      for (; end < entries.size() && depth(lines[entries[begin].line], lines[entries[end].line]) > level; ++end)
        most = std::max(most, lines[entries[end].line].cost);
      for (size_t i = begin; i < end; ++i) entries[i].costliest[level] = most;
    }
  std::sort(entries.begin(), entries.end(), [&](const Entry& a, const Entry& b) {
    const InputLine &x = lines[a.line], &y = lines[b.line];
    for (size_t level = 0; level < kLevels; ++level) {
      if (a.costliest[level] != b.costliest[level]) return a.costliest[level] > b.costliest[level];
      if (x.beginnings[level] != y.beginnings[level]) return x.beginnings[level] < y.beginnings[level];
    }
    return x.cost != y.cost ? x.cost > y.cost : a.line < b.line;
  });
  for (size_t i = 0; i < order.size(); ++i) order[i] = entries[i].line;
}

std::vector<size_t> deal_work(std::span<const InputLine> lines, std::vector<uint32_t>& order, size_t n) {
  check(n > 0, "no replicas");
  std::vector<size_t> piece_ends;
  if (!order.empty()) cut_pieces(lines, order, 0, order.size(), 0, cost_of(lines, order) / (4 * n), piece_ends);
  std::vector<std::vector<uint32_t>> hands(n);
  using Hand = std::pair<uint64_t, size_t>;  // cost so far, whose
  std::priority_queue<Hand, std::vector<Hand>, std::greater<>> least;
  for (size_t r = 0; r < n; ++r) least.emplace(0, r);
  size_t begin = 0;
  for (const size_t end : piece_ends) {
    const auto [cost, r] = least.top();
    least.pop();
    const auto piece = std::span<const uint32_t>(order).subspan(begin, end - begin);
    hands[r].insert(hands[r].end(), piece.begin(), piece.end());
    least.emplace(cost + cost_of(lines, piece), r);
    begin = end;
  }
  order.clear();
  std::vector<size_t> ends;
  for (const std::vector<uint32_t>& hand : hands) {
    order.insert(order.end(), hand.begin(), hand.end());
    ends.push_back(order.size());
  }
  return ends;
}

WorkCut cut_work(std::span<const InputLine> lines, std::span<const uint32_t> order, size_t begin, size_t end, uint64_t cost) {
  if (begin == end) return {begin, 0};
  size_t wanted = begin;
  for (uint64_t sum = 0; wanted + 1 < end && sum + work_cost(lines[order[wanted]]) <= cost; ++wanted)
    sum += work_cost(lines[order[wanted]]);

  const auto distance = [wanted](size_t i) { return i > wanted ? i - wanted : wanted - i; };
  const auto rank = [&](size_t i) {  // begin and end are no borders: a cut there would move nothing
    return std::pair(depth(lines[order[i - 1]], lines[order[i]]), distance(i));
  };
  const size_t reach = (end - begin) / 8;
  size_t best = wanted;
  for (size_t i = std::max(begin + 1, wanted - std::min(reach, wanted)); i < end && i <= wanted + reach; ++i)
    if (best == begin || rank(i) < rank(best)) best = i;
  return {best, cost_of(lines, order.subspan(begin, best - begin))};
}

int64_t even_sequences(std::span<const InputLine> lines, std::span<const uint32_t> to_run, int64_t n_replicas) {
  check(n_replicas > 0, n_replicas, " replicas");
  const auto ceil_div = [](uint64_t a, uint64_t b) { return a / b + (a % b != 0); };
  uint64_t sum = 0, longest = 1;
  for (const uint32_t i : to_run) {
    const uint64_t n_steps = std::max(lines[i].max_tokens, 1u);  // a prompt that is only scored takes a step too
    const bool overflow = __builtin_add_overflow(sum, n_steps * lines[i].n_answers, &sum);
    if (overflow) sum = std::numeric_limits<uint64_t>::max();
    if (lines[i].n_answers > 0) longest = std::max(longest, n_steps);
  }
  const uint64_t n = ceil_div(ceil_div(sum, longest), static_cast<uint64_t>(n_replicas));
  return static_cast<int64_t>(std::min<uint64_t>(n, std::numeric_limits<int64_t>::max()));
}

}  // namespace lockstep
