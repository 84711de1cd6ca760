#include "mesh/mesh.h"

#include <algorithm>

#include "base/error.h"

namespace lockstep {

std::vector<int> Mesh::replica_ranks(int dp_index) const {
  std::vector<int> ranks;
  for (int i = 0; i < pp * tp; ++i) ranks.push_back(dp_index * pp * tp + i);
  return ranks;
}

std::string name_of(const Place& p) { return concat("d", p.dp, "p", p.pp, "t", p.tp); }

Range split(int64_t n, int parts, int index) {
  check(parts >= 1 && 0 <= index && index < parts, "part ", index, " of ", parts);
  const int64_t share = n / parts, extra = n % parts;
  const int64_t begin = index * share + std::min<int64_t>(index, extra);
  return {begin, begin + share + (index < extra ? 1 : 0)};
}

}  // namespace lockstep
