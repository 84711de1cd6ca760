// Which lines of the input are still to run, from what the journal holds. Lines are known by id (custom_id) and content, not
// by their place: reordered and appended ones are fine, edited and removed ones are refused, since their records would stay.
//   ResumePlan plan = plan_resume(state, input.lines(), o.retry_errors);  if (plan.finished) merge...
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "journal/input_file.h"
#include "journal/journal.h"

namespace lockstep {

struct ResumePlan {
  std::vector<uint32_t> to_run;  // indices into the lines, ascending
  int64_t n_done = 0;            // answered
  int64_t n_failed = 0;          // failed, and not to be run again
  bool finished = false;         // nothing to run
};

// Error (usage) names the lines that were edited or removed; done lines beyond a smaller --limit count as removed.
ResumePlan plan_resume(const JournalState& state, std::span<const InputLine> lines, bool retry_errors);

}  // namespace lockstep
