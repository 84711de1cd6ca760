// timings.h5 of an output directory: the raw records of all its attempts, brought in line with the input as it is now. Figures
// are not worth a failed run: what goes wrong is a warning.
//   write_final_timings(job, is_whole, {{epoch, 0, {"merge", 0.2}}});
#pragma once

#include <vector>

#include "commands/job.h"
#include "telemetry/raw_timings.h"

namespace lockstep {

// is_whole: completions.jsonl is there, and lines whose timings were lost get a row from it, without times.
// more: phases that have no raw record yet.
void write_final_timings(const Job& job, bool is_whole, const std::vector<Timings::Phase>& more);

// One row for each of `lines` that is known: rows get the line's number of today, others go. Exposed for tests.
void align_with_input(std::vector<RequestTiming>& rows, const std::vector<InputLine>& lines);

// Adds what completions.jsonl (one record a line, in order of `lines`) knows of lines without a row.
void add_rows_of_records(std::vector<RequestTiming>& rows, const std::vector<InputLine>& lines, const std::string& completions);

}  // namespace lockstep
