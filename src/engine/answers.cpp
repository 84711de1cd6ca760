#include "engine/answers.h"

#include <algorithm>

#include "base/utf8.h"
#include "journal/output_record.h"

namespace lockstep {

void Answers::begin(const InputLine& input, const PromptRecord& record, const std::vector<Request>& requests, double now_s) {
  Line& line = lines_[input.line];
  line.input = input;
  line.custom_id = record.custom_id;
  line.endpoint = record.endpoint;
  line.choices.resize(requests.size());
  line.n_open = static_cast<int32_t>(requests.size());
  for (const Request& request : requests) {
    Sequence s{request, Detokenizer(language_.tokenizer(), true), {}};
    s.completion.line = request.line;
    s.completion.choice = request.choice;
    s.completion.n_prompt = static_cast<int32_t>(request.prompt.size());
    s.completion.admitted_s = now_s;
    if (record.params.echo.value_or(false)) {
      s.completion.echo = true;
      s.completion.prompt_text = prompt_text(record, request);
      if (request.sampling.prompt_logprobs) s.completion.prompt = request.prompt;
      if (request.sampling.prompt_logprobs) s.completion.prompt_logprobs.resize(request.prompt.size() - 1);
    }
    // The n samples of a prompt share it.
    if (request.choice % record.params.n.value_or(1) == 0) line.n_prompt += static_cast<int64_t>(request.prompt.size());
    const bool needs_no_step = request.sampling.max_tokens == 0 && s.completion.prompt_logprobs.empty();
    sequences_.emplace(request.id, std::move(s));
    if (needs_no_step) end(request.id, FinishReason::length, now_s);
  }
}

// As the line has it, or what its token ids say.
std::string Answers::prompt_text(const PromptRecord& record, const Request& request) const {
  const PromptText& prompt = record.prompts.at(request.choice / record.params.n.value_or(1));
  if (const auto* text = std::get_if<std::string>(&prompt)) return *text;
  return language_.tokenizer().decode(request.prompt, false);
}

void Answers::fail_line(const InputLine& line, const std::string& custom_id, const Fault& fault) {
  finished_.push_back({line, custom_id, true, error_record(custom_id, fault), {}});
}

int32_t Answers::begin_cached(const CachedPrefix& cached) {
  const auto found = sequences_.find(cached.request);
  if (found == sequences_.end()) return 0;
  Completion& completion = found->second.completion;
  if (!completion.tokens.empty() || completion.n_cached > 0) return 0;
  return completion.n_cached = std::min(cached.n_tokens, completion.n_prompt);
}

bool Answers::add(const SampledToken& sampled, double now_s) {
  const auto found = sequences_.find(sampled.request);
  check(found != sequences_.end(), "a token for request ", sampled.request, ", which is not open");
  Sequence& s = found->second;
  const SamplingParams& params = s.request.sampling;
  if (!sampled.finite) {
    fail_finite(s, concat("token ", s.completion.tokens.size(), " of the completion"));
    end(sampled.request, FinishReason::error, now_s);
    return true;
  }
  ++n_generated_;
  if (s.completion.tokens.empty()) s.completion.first_token_s = now_s;
  s.completion.tokens.push_back(sampled.token);
  if (params.n_logprobs >= 0) s.completion.logprobs.push_back(sampled);

  const auto& ends = params.stop_token_ids;
  const bool is_end = std::find(ends.begin(), ends.end(), sampled.token) != ends.end();
  const bool is_full = static_cast<int32_t>(s.completion.tokens.size()) >= params.max_tokens;
  const size_t searched = s.completion.text.size();
  if (!is_end) s.completion.text += s.detokenizer.push(sampled.token);
  if (is_end || is_full) s.completion.text += s.detokenizer.finish();
  // As for EOS, the first min_tokens tokens can't end the completion: what they say is not searched.
  const bool may_stop = static_cast<int32_t>(s.completion.tokens.size()) > params.min_tokens;
  const bool is_stopped = may_stop && cut_at_stop(s, searched);
  if (!is_end && !is_full && !is_stopped) return false;
  end(sampled.request, is_end || is_stopped ? FinishReason::stop : FinishReason::length, now_s);
  return true;
}

void Answers::add_score(const SampledToken& scored, double now_s) {
  Sequence& s = sequences_.at(scored.request);
  if (!scored.finite) fail_finite(s, concat("token ", scored.position, " of the prompt"));
  auto& scores = s.completion.prompt_logprobs;
  scores.at(static_cast<size_t>(scored.position) - 1) = scored;
  const bool is_last = static_cast<size_t>(scored.position) == scores.size();
  if (is_last && s.request.sampling.max_tokens == 0) end(scored.request, FinishReason::length, now_s);
}

void Answers::fail_finite(const Sequence& s, const std::string& where) {
  lines_.at(s.request.line).fault = Fault{"non_finite_logits", concat("the model's logits hold NaN or infinity at ", where)};
}

// The earliest match in the text wins, whichever stop text it is; a match may have begun in text that was searched before.
bool Answers::cut_at_stop(Sequence& s, size_t searched) {
  const SamplingParams& params = s.request.sampling;
  size_t cut = std::string::npos, end = 0;
  for (const std::string& stop : params.stop) {
    const size_t found = s.completion.text.find(stop, searched - std::min(searched, stop.size() - 1));
    if (found == std::string::npos || found > cut || (found == cut && found + stop.size() < end)) continue;
    cut = found;
    end = found + stop.size();  // of two that begin together the longer one
  }
  if (cut == std::string::npos) return false;
  s.completion.text.resize(params.include_stop_str_in_output ? end : cut);
  return true;
}

void Answers::end(RequestId request, FinishReason reason, double now_s) {
  auto node = sequences_.extract(request);
  Completion& completion = node.mapped().completion;
  completion.reason = reason;
  completion.done_s = now_s;
  const int64_t line_number = completion.line;
  Line& line = lines_.at(line_number);
  line.choices[completion.choice] = std::move(completion);
  if (--line.n_open == 0) close_line(line_number);
}

void Answers::close_line(int64_t line_number) {
  auto node = lines_.extract(line_number);
  Line& line = node.mapped();
  const std::string& custom_id = line.custom_id;
  if (line.fault) return fail_line(line.input, custom_id, *line.fault);
  const RecordContext context{.custom_id = custom_id,
                              .endpoint = line.endpoint,
                              .model = model_name_,
                              .token_text =
                                  [this](TokenId token) {
                                    const Tokenizer& tokenizer = language_.tokenizer();
                                    std::string bytes = tokenizer.token_bytes(token);
                                    std::string text = lossy_utf8(bytes);
                                    if (tokenizer.is_special(token)) bytes.clear();  // the text leaves it out
                                    return TokenText{std::move(text), std::move(bytes)};
                                  },
                              .n_prompt_tokens = line.n_prompt};
  std::string record = success_record(context, line.choices);
  finished_.push_back({line.input, custom_id, false, std::move(record), std::move(line.choices)});
}

std::vector<FinishedLine> Answers::take_finished() { return std::exchange(finished_, {}); }

}  // namespace lockstep
