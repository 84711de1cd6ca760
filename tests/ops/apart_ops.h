// Ops on the CPU behind a GPU's walls: finds out without a GPU whether a test would work on one. The host can't touch the
// memory outside of a call (that stops the program), and what ops/cuda would refuse, or take for something else, is an Error:
// another dtype than bf16, columns that don't come in eights, tables with gaps between their rows, memory that isn't its own.
//   auto ops = make_apart_ops(make_cpu_ops({.n_threads = 2}));
#pragma once

#include <memory>

#include "ops/ops.h"

namespace lockstep {

std::unique_ptr<Ops> make_apart_ops(std::unique_ptr<Ops> inner);

}  // namespace lockstep
