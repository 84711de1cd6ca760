#include "text/unicode_classes.h"

#include <algorithm>
#include <map>

namespace lockstep {
namespace {

struct Run {
  uint32_t first;  // up to the next run's first
  ClassMask mask;
};
constexpr Run kRuns[] = {
#include "text/unicode_classes.inc"
};
constexpr uint32_t kEnd = 0x110000;

}  // namespace

UnicodeClasses::UnicodeClasses() {
  std::vector<ClassMask> all(kEnd);
  for (size_t i = 0; i < std::size(kRuns); ++i) {
    const uint32_t end = i + 1 < std::size(kRuns) ? kRuns[i + 1].first : kEnd;
    std::fill(all.begin() + kRuns[i].first, all.begin() + end, kRuns[i].mask);
  }
  std::map<std::vector<ClassMask>, uint16_t> known;
  for (size_t block = 0; block < index_.size(); ++block) {
    const std::vector<ClassMask> masks(all.begin() + block * kBlock, all.begin() + (block + 1) * kBlock);
    const auto [at, is_new] = known.try_emplace(masks, static_cast<uint16_t>(known.size()));
    if (is_new) masks_.insert(masks_.end(), masks.begin(), masks.end());
    index_[block] = at->second;
  }
}

const UnicodeClasses& unicode_classes() {
  static const UnicodeClasses classes;
  return classes;
}

CodePointRanges ranges_of(ClassMask classes) {
  CodePointRanges ranges;
  for (size_t i = 0; i < std::size(kRuns); ++i) {
    if ((kRuns[i].mask & classes) == 0) continue;
    const uint32_t first = kRuns[i].first;
    const uint32_t last = (i + 1 < std::size(kRuns) ? kRuns[i + 1].first : kEnd) - 1;
    if (!ranges.empty() && ranges.back().second + 1 == first) {
      ranges.back().second = last;
    } else {
      ranges.emplace_back(first, last);
    }
  }
  return ranges;
}

}  // namespace lockstep
