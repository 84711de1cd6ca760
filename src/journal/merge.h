// The final files from the journal: completions.jsonl has the record of every input line, in input order; errors.jsonl has
// the failed ones once more. Each appears whole or not at all; doing it again gives the same bytes.
//   MergeResult r = merge_outputs(out, input.lines(), recover_journal(out), false);
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/hash.h"
#include "journal/input_file.h"
#include "journal/journal.h"

namespace lockstep {

struct MergeResult {
  int64_t n_lines = 0;  // of the input
  int64_t n_answered = 0;
  int64_t n_failed = 0;
  int64_t n_missing = 0;  // without a record; 0 unless partial
  uint64_t bytes = 0;     // of completions.jsonl
  Digest digest;          // of completions.jsonl
};

// The caller holds the directory's lock. `state` is as recovered after the last commit. Error (output_io) where a line has
// no record (unless `partial`), where its record is for another content, or where a shard no longer holds what was
// recovered, Error (stopped) after a stop signal: then the final files stay as they were. A failed record gets its line's
// number, which the journal can't know.
MergeResult merge_outputs(const std::string& out_dir, std::span<const InputLine> lines, const JournalState& state,
                          bool partial);

// Of several directories, for one input. A line that several have: as within one journal, an answer before a failure, then
// the first directory. disjoint: no line is in two of them (shards of a job array, in their order), which spares looking.
MergeResult merge_outputs(const std::string& out_dir, std::span<const InputLine> lines, std::span<const JournalState> states,
                          bool partial, bool disjoint = false);

}  // namespace lockstep
