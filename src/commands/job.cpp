#include "commands/job.h"

#include "base/hash.h"
#include "base/log.h"
#include "base/units.h"
#include "commands/shards.h"
#include "journal/epoch.h"
#include "telemetry/raw_timings.h"
#include "version.h"

namespace lockstep {

namespace {

std::string text_of(const std::optional<double>& value) { return value ? concat(*value) : "model"; }

std::vector<ManifestField> manifest_fields(const RunOptions& options, const ModelSource& model,
                                           const std::string& kernel_class) {
  std::vector<ManifestField> fields = {
      {"results version", kResultsVersion},
      {"model", model.digest},
      {"--served-model-name", model.name},
      {"--dtype", std::string(name_of(model.dtype))},
      {"kernel class", kernel_class},
      {"--max-model-len", concat(model.max_model_len)},
      {"--seed", concat(options.seed)},
      {"--max-tokens", options.max_tokens ? concat(*options.max_tokens) : "endpoint"},
      {"--temperature", text_of(options.temperature)},
      {"--top-p", text_of(options.top_p)},
      {"--chat-template", model.defaults.chat_template ? digest128(*model.defaults.chat_template).hex() : "model"},
      {"--content-special-tokens", options.content_special_tokens},
      {"--require-model", options.require_model}};
  if (options.n_shards > 1) fields.push_back({kShardField, shard_name({options.shard, options.n_shards})});
  return fields;
}

}  // namespace

Job open_job(const RunOptions& options, const ModelSource& model, const std::string& kernel_class) {
  Job job;
  job.out_dir = options.output;
  job.input = std::make_unique<InputFile>(InputFile::open(options.input, options.limit));
  const size_t n_requests = job.input->lines().size();
  if (n_requests == 0) fail(ExitCode::unreadable, options.input, ": holds no request");
  job.input->keep_shard(options.shard, options.n_shards);
  if (job.input->lines().empty())
    fail(ExitCode::usage, "--shard ", shard_name({options.shard, options.n_shards}), ": no request is left for it, ",
         options.input, " holds ", n_requests);
  job.fields = manifest_fields(options, model, kernel_class);

  const OutputDirectory directory = prepare_output(options.output);
  job.lock = std::make_unique<DirectoryLock>(options.output, DirectoryLockOptions{.takeover = options.takeover});
  if (!job.lock->replaced().empty()) log_warning("took over the lock of ", job.lock->replaced());
  constexpr uint64_t kRecordEstimate = 4096;  // bytes a line: journal and final file
  if (directory.free_bytes < job.input->lines().size() * kRecordEstimate)
    log_warning(options.output, ": ", format_bytes(directory.free_bytes), " free, the results may need ",
                format_bytes(job.input->lines().size() * kRecordEstimate));

  job.start = check_start(options.output, job.fields, {.resume = options.resume != "never", .overwrite = options.overwrite});
  if (job.start == RunStart::resume) job.journal = recover_journal(options.output);
  for (const std::string& note : job.journal.notes) log_warning(note);
  job.plan = plan_resume(job.journal, job.input->lines(), options.retry_errors);
  return job;
}

void begin_job(Job& job, const std::string& about) {
  if (job.start == RunStart::anew) remove_timings(job.out_dir);
  begin_run(job.out_dir, job.fields, job.start);
  if (job.start != RunStart::resume) job.journal = recover_journal(job.out_dir);  // else open_job read it, under this lock
  job.epoch = open_epoch(job.out_dir, job.journal, about);
}

MergeResult finish_job(Job& job) {
  job.journal = {};  // two of them at once would be the most memory that the run ever takes
  job.journal = recover_journal(job.out_dir);
  for (const std::string& note : job.journal.notes) log_warning(note);
  return merge_outputs(job.out_dir, job.input->lines(), job.journal, false);
}

}  // namespace lockstep
