#include "engine/replica_root.h"

#include <algorithm>

#include "journal/prompt_reader.h"

namespace lockstep {

ReplicaRoot::ReplicaRoot(const Language& language, WorkClient work, JournalWriter& journal, ReplicaRootOptions options)
    : language_(language),
      work_(std::move(work)),
      journal_(journal),
      options_(std::move(options)),
      input_(InputFile::unscanned(options_.input)),
      answers_(language, options_.model_name),
      waiting_(options_.lag) {}

StepEvents ReplicaRoot::events_of(const StepBatch& batch, const StepOutcome& outcome) {
  const int64_t n_open = answers_.n_open();
  StepEvents events;
  events.step = batch.step;
  for (const CachedPrefix& cached : batch.cached) totals_.n_cached_tokens += answers_.begin_cached(cached);
  for (const auto* tokens : {&outcome.scored, &outcome.sampled})
    for (const SampledToken& token : *tokens) waiting_.has_outcome(token.request);
  for (const SampledToken& token : outcome.scored)
    if (answers_.open(token.request)) answers_.add_score(token, options_.now_s());
  for (const SampledToken& token : outcome.sampled) {
    if (!answers_.open(token.request)) continue;  // finished at an earlier step: this one ran ahead (lag > 0)
    const bool finished = answers_.add(token, options_.now_s());
    events.sampled.push_back({token.request, token.token, finished});
  }
  waiting_.end_step(static_cast<size_t>(n_open - answers_.n_open()));
  admit(events);
  write_finished();
  if (journal_.commit_due()) commit();
  events.drained = work_.drained();
  if (options_.stop_asked()) work_.announce_stop();
  events.stop = work_.stop_received();
  return events;
}

void ReplicaRoot::admit(StepEvents& events) {
  const auto n_free = [&] {  // slots too, lest a line waits here while another replica has one
    int64_t most = options_.max_open;
    if (options_.n_slots > 0) most = std::min(most, options_.n_slots + static_cast<int64_t>(waiting_.finishing()));
    return std::min(waiting_.room(), static_cast<size_t>(std::max<int64_t>(most - answers_.n_open(), 0)));
  };
  work_.poll(n_free());
  while (n_free() > 0) {
    const auto line = work_.take();
    if (!line) break;
    begin_line(*line, events);
  }
}

// text -> record -> tokens; a fault on the way is the line's answer
void ReplicaRoot::begin_line(const InputLine& line, StepEvents& events) {
  const std::string text = input_.read(line);
  const PromptRecord record = parse_prompt(json_, text, line.line);
  if (record.fault) return answers_.fail_line(line, record.custom_id, *record.fault);
  if (!options_.require_model.empty() && !record.model.empty() && record.model != options_.require_model)
    return answers_.fail_line(
        line, record.custom_id,
        {"model_mismatch", concat("model: \"", record.model, "\", expected \"", options_.require_model, "\"")});
  auto requests = language_.requests_of(record);
  if (!requests.ok()) return answers_.fail_line(line, record.custom_id, requests.fault());
  for (Request& request : requests.value()) {
    request.id = next_id_++;
    totals_.n_prompt_tokens += static_cast<int64_t>(request.prompt.size());
  }
  answers_.begin(line, record, requests.value(), options_.now_s());
  for (Request& request : requests.value())
    if (answers_.open(request.id)) {
      waiting_.add(request.id);
      events.admitted.push_back(std::move(request));
    }
}

void ReplicaRoot::write_finished() {
  for (FinishedLine& line : answers_.take_finished()) {
    journal_.append({line.line.id, line.line.content, line.failed, line.record});
    ++totals_.n_done;
    totals_.n_failed += line.failed ? 1 : 0;
    options_.on_finished(line);
  }
}

void ReplicaRoot::commit() {
  write_finished();
  journal_.commit();
  totals_.n_generated_tokens = answers_.n_generated();
  work_.report(totals_);
}

}  // namespace lockstep
