// timings.h5 of an output directory: the raw records of all its attempts, brought in line with the input as it is now. Figures
// are not worth a failed run: what goes wrong is a warning.
//   write_final_timings(job, is_whole, {{epoch, 0, {"merge", 0.2}}});
#pragma once

#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "commands/job.h"
#include "telemetry/raw_timings.h"

namespace lockstep {

// is_whole: completions.jsonl is there, and lines whose timings were lost get a row from it, without times.
// more: phases that have no raw record yet.
void write_final_timings(const Job& job, bool is_whole, const std::vector<Timings::Phase>& more);

// One row for each of `lines` that is known, with the line's number of today: from the raw records, of which the last attempt
// counts, or else from completions.jsonl (is_whole). 16 bytes a line; exposed for tests.
class FinalRows {
 public:
  FinalRows(const std::string& out_dir, std::span<const InputLine> lines, bool is_whole);
  size_t size() const { return shown_.size(); }
  std::vector<RequestTiming> slice(size_t begin, size_t end);  // one slice after the other
  const Timings& rest() const { return rest_; }                // all but the requests

 private:
  RequestTiming row_of_completion(size_t i);

  std::span<const InputLine> lines_;
  RawTimingsReader raw_;
  std::vector<RawPlace> places_;  // [n_lines]
  std::vector<uint32_t> shown_;   // lines that have a row
  Timings rest_;
  std::ifstream completions_;
  size_t n_passed_ = 0;  // lines of it
};

}  // namespace lockstep
