// The process grid: which rank holds which data-parallel replica, pipeline stage and tensor shard. Integers only.
//   Mesh mesh{.dp = 2, .pp = 1, .tp = 4};   Place p = mesh.place(rank);
// Ranks of a tensor-parallel group are neighbours (they talk most, and mpirun fills a node first), then stages, then replicas:
//   rank = (dp_index * pp + pp_index) * tp + tp_index
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace lockstep {

struct Place {
  int dp = 0, pp = 0, tp = 0;
  bool operator==(const Place&) const = default;
};

struct Mesh {
  int dp = 1, pp = 1, tp = 1;

  int n_ranks() const { return dp * pp * tp; }
  Place place(int rank) const { return {rank / (pp * tp), rank / tp % pp, rank % tp}; }
  int rank(Place p) const { return (p.dp * pp + p.pp) * tp + p.tp; }

  // A replica's root reads, tokenises, samples and writes: the first tensor rank of the last stage, where tokens appear.
  Place root(int dp_index) const { return {dp_index, pp - 1, 0}; }
  std::vector<int> replica_ranks(int dp_index) const;  // all ranks of a replica, ascending
  bool operator==(const Mesh&) const = default;
};

std::string name_of(const Place& p);  // "d0p1t2", for messages

// Divides n units over `parts` owners, the first ones taking one more where it doesn't come out even: 9 heads over 2 -> 5 + 4.
// Where units come in groups that stay together (heads of a kv group), divide the groups and scale: 3 kv groups over 2 -> 2
// + 1.
Range split(int64_t n, int parts, int index);

}  // namespace lockstep
