// The end of a run on rank 0: the final files, the timings, run.json, the table; and the facts about a run that these need.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/phase_timer.h"
#include "cli.h"
#include "comm/communicator.h"
#include "comm/mpi_session.h"
#include "commands/job.h"
#include "commands/model_source.h"
#include "engine/answers.h"
#include "engine/language.h"
#include "engine/work.h"
#include "mesh/mesh.h"
#include "model/stage.h"
#include "ops/ops.h"
#include "telemetry/run_record.h"

namespace lockstep {

// What must be equal on every rank: the program, the model's files, the arithmetic.
std::vector<std::pair<std::string, std::string>> facts_of(const RunOptions& options, const ModelSource& model, const Ops& ops);

std::string about_run(const RunOptions& options, const Mesh& mesh, const MpiSession& mpi);  // JSON, kept in the epoch file
RequestTiming timing_of(const FinishedLine& line, int64_t epoch, int replica);

// run.json as far as it is known when the work ends. Collective over world: gathers the hosts.
RunRecord describe(Communicator& world, const RunOptions& options, const ModelSource& model, const Mesh& mesh,
                   const MpiSession& mpi, const Ops& ops, const Stage& stage, int64_t n_pages, int n_threads);

// Energy of all ranks' GPUs; mine is this rank's. Collective over world.
EnergyRecord gather_energy(Communicator& world, const GpuEnergy& mine);

struct Outcome {
  WorkTotals totals;
  bool stopped = false;
};
// Collective over world.
Outcome sum_outcomes(Communicator& world, const WorkTotals& mine, bool stopped);

// Rank 0: everything is committed; makes the final files, or says how to go on after a stop.
ExitCode finish_run(Job& job, const Outcome& outcome, PhaseTimer& phases, RunRecord record);

// Collective. Nothing is left to run: makes the final files if they aren't those of this input, and says so.
ExitCode already_finished(Job& job, const RunOptions& options,
                          const std::function<void(const std::function<void()>&)>& everyone);

}  // namespace lockstep
