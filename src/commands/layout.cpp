#include "commands/layout.h"

#include <optional>

#include "base/error.h"

namespace lockstep {

Mesh layout_of(const RunOptions& options, int n_ranks) {
  const int given = options.tp.value_or(1) * options.pp.value_or(1) * options.dp.value_or(1);
  const auto asked = [&] {
    std::string text;
    if (options.tp) text += concat("--tp ", *options.tp, " ");
    if (options.pp) text += concat("--pp ", *options.pp, " ");
    if (options.dp) text += concat("--dp ", *options.dp, " ");
    return text;
  };
  if (n_ranks % given != 0)
    fail(ExitCode::usage, asked(), "makes ", given, " ranks, the job has ", n_ranks, " (tp x pp x dp = ranks)");
  const int rest = n_ranks / given;
  Mesh mesh{.dp = options.dp.value_or(1), .pp = options.pp.value_or(1), .tp = options.tp.value_or(1)};
  if (!options.dp)
    mesh.dp = rest;
  else if (!options.tp)
    mesh.tp = rest;
  else if (!options.pp)
    mesh.pp = rest;
  if (mesh.n_ranks() != n_ranks)
    fail(ExitCode::usage, asked(), "makes ", mesh.n_ranks(), " ranks, the job has ", n_ranks, " (tp x pp x dp = ranks)");
  return mesh;
}

int lag_of(const RunOptions& options, const Mesh& mesh) {
  return options.lag.value_or(mesh.pp > 1 ? mesh.pp - 1 : options.device == "cuda");
}

}  // namespace lockstep
