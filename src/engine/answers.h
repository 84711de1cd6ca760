// What becomes of the lines: the text of every running sequence, when it ends, and the record of a line once all of its choices
// have ended. Only a replica's root keeps this.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/language.h"
#include "journal/input_file.h"
#include "records/completion.h"
#include "records/prompt_record.h"
#include "records/request.h"
#include "records/step_batch.h"
#include "text/detokenizer.h"

namespace lockstep {

struct FinishedLine {
  InputLine line;
  std::string custom_id;
  bool failed = false;
  std::string record;               // JSON, as the journal keeps it
  std::vector<Completion> choices;  // for the timings
};

class Answers {
 public:
  Answers(const Language& language, std::string model_name) : language_(language), model_name_(std::move(model_name)) {}

  // A line begins: with its sequences, or with the fault that ends it at once.
  void begin(const InputLine& line, const PromptRecord& record, const std::vector<Request>& requests, double now_s);
  // The sequence found the KV of its first tokens; how many of its prompt that spares (0 if it comes back after a preemption).
  int32_t begin_cached(const CachedPrefix& cached);
  void fail_line(const InputLine& line, const std::string& custom_id, const Fault& fault);

  // One more token of a sequence; true when the sequence is finished by it.
  bool add(const SampledToken& token, double now_s);
  // The log-probability of a prompt token; ends a sequence that only scores with its last one.
  void add_score(const SampledToken& token, double now_s);
  bool open(RequestId request) const { return sequences_.contains(request); }
  int64_t n_open() const { return static_cast<int64_t>(sequences_.size()); }
  int64_t n_generated() const { return n_generated_; }  // tokens so far

  std::vector<FinishedLine> take_finished();

 private:
  struct Sequence {
    Request request;
    Detokenizer detokenizer;
    Completion completion;
  };
  struct Line {
    InputLine input;
    std::string custom_id;
    Endpoint endpoint = Endpoint::completions;
    std::vector<Completion> choices;
    int64_t n_prompt = 0;
    int32_t n_open = 0;
    std::optional<Fault> fault;
  };
  void fail_finite(const Sequence& s, const std::string& where);
  bool cut_at_stop(Sequence& s, size_t searched);  // true if a stop text is in the completion, which is cut there
  std::string prompt_text(const PromptRecord& record, const Request& request) const;
  void end(RequestId request, FinishReason reason, double now_s);
  void close_line(int64_t line);

  const Language& language_;
  std::string model_name_;
  std::unordered_map<RequestId, Sequence> sequences_;
  std::unordered_map<int64_t, Line> lines_;  // by line number
  std::vector<FinishedLine> finished_;
  int64_t n_generated_ = 0;
};

}  // namespace lockstep
