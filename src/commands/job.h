// Rank 0's side of the output directory: its lock, the input's lines, what the journal already holds, and what is left to run.
//   Job job = open_job(options, model, kernel_class);   ... everything else is checked and loaded ...   begin_job(job, about);
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli.h"
#include "commands/model_source.h"
#include "journal/directory_lock.h"
#include "journal/input_file.h"
#include "journal/journal.h"
#include "journal/manifest.h"
#include "journal/merge.h"
#include "journal/resume.h"

namespace lockstep {

struct Job {
  std::string out_dir;
  std::unique_ptr<DirectoryLock> lock;
  std::unique_ptr<InputFile> input;
  std::vector<ManifestField> fields;  // what was asked, as far as it changes results
  RunStart start = RunStart::fresh;
  JournalState journal;
  ResumePlan plan;
  int64_t epoch = 0;  // of this run's shards; 0 until begin_job
};

// Prepares the directory, takes its lock, reads the input and compares it with what the directory holds. Error (usage) if
// options or input contradict an earlier run. Nothing old is touched.
Job open_job(const RunOptions& options, const ModelSource& model, const std::string& kernel_class);

// After all checks of the run: replaces an old run if --overwrite asked for it, and opens the epoch, which fences off older
// writers.
void begin_job(Job& job, const std::string& about);

// The final files, from everything the journal holds now.
MergeResult finish_job(Job& job);

}  // namespace lockstep
