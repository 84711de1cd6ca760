// The order of work: lines that begin alike stand together, so that the prefix cache finds what it holds; the costliest first,
// so that the last ones to end are short. Pure functions over the outline of the input; nothing of a prompt is read.
//   order_for_prefixes(lines, order);   const WorkCut half = cut_work(lines, order, begin, end, cost / 2);
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "journal/input_file.h"

namespace lockstep {

constexpr uint64_t work_cost(const InputLine& line) { return uint64_t{line.cost} + 1; }
uint64_t cost_of(std::span<const InputLine> lines, std::span<const uint32_t> order);

// Sorts `order`, indices of `lines`: groups with the same beginning are whole, at every level of Beginnings; groups and the
// lines of a group follow each other by their costliest line. O(n log n).
void order_for_prefixes(std::span<const InputLine> lines, std::vector<uint32_t>& order);

// Deals `order` out to n replicas, so that each has about as much to do, long lines and short ones: in pieces that begin alike,
// the costliest first, each to whoever has least so far. A piece is at most a quarter of a replica's share; what begins alike
// and costs more is dealt by its longer beginnings, or by lines. Afterwards the lines of replica r stand together, in the order
// that they had: [ends[r - 1], ends[r]) of `order`.
std::vector<size_t> deal_work(std::span<const InputLine> lines, std::vector<uint32_t>& order, size_t n);

// Where to cut [begin, end) of an order, so that about `cost` stands before the cut: within an eighth of the lines around that
// place it cuts where beginnings agree least. At least one line stands after the cut if there is one.
struct WorkCut {
  size_t at = 0;
  uint64_t cost = 0;  // of [begin, at)
};
WorkCut cut_work(std::span<const InputLine> lines, std::span<const uint32_t> order, size_t begin, size_t end, uint64_t cost);

// How many sequences a replica works on at a time so that all of them together last about as long as the longest alone: with
// more, the short ones are done early and few are left for the longest ones' last steps, which cost nearly as much as full
// ones. 0 where there is nothing to run. max_tokens is the most that an answer may take, so this is an estimate from above.
int64_t even_sequences(std::span<const InputLine> lines, std::span<const uint32_t> to_run, int64_t n_replicas);

}  // namespace lockstep
