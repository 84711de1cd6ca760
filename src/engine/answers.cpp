#include "engine/answers.h"

#include <algorithm>

#include "base/utf8.h"
#include "journal/output_record.h"

namespace lockstep {

void Answers::begin(const InputLine& input, const PromptRecord& record, const std::vector<Request>& requests, double now_s) {
  Line& line = lines_[input.line];
  line.input = input;
  line.record = record;
  line.record.prompts.clear();
  line.record.messages.clear();
  line.choices.resize(requests.size());
  line.n_open = static_cast<int32_t>(requests.size());
  for (const Request& request : requests) line.n_prompt += static_cast<int64_t>(request.prompt.size());
  for (const Request& request : requests) {
    Sequence s{request, Detokenizer(language_.tokenizer(), true), {}};
    s.completion.line = request.line;
    s.completion.choice = request.choice;
    s.completion.n_prompt = static_cast<int32_t>(request.prompt.size());
    s.completion.admitted_s = now_s;
    sequences_.emplace(request.id, std::move(s));
    if (request.sampling.max_tokens == 0) end(request.id, FinishReason::length, now_s);
  }
}

void Answers::fail_line(const InputLine& line, const std::string& custom_id, const Fault& fault) {
  finished_.push_back({line, custom_id, true, error_record(custom_id, fault), {}});
}

bool Answers::add(const SampledToken& sampled, double now_s) {
  const auto found = sequences_.find(sampled.request);
  check(found != sequences_.end(), "a token for request ", sampled.request, ", which is not open");
  Sequence& s = found->second;
  const SamplingParams& params = s.request.sampling;
  if (!sampled.finite) {
    lines_.at(s.request.line).fault =
        Fault{"non_finite_logits", concat("the model's logits hold NaN or infinity at token ", s.completion.tokens.size())};
    end(sampled.request, FinishReason::error, now_s);
    return true;
  }
  ++n_generated_;
  if (s.completion.tokens.empty()) s.completion.first_token_s = now_s;
  s.completion.tokens.push_back(sampled.token);
  if (params.n_logprobs >= 0) s.completion.logprobs.push_back(sampled);

  const bool is_end = language_.ends(sampled.token) && !params.ignore_eos;
  const bool is_full = static_cast<int32_t>(s.completion.tokens.size()) >= params.max_tokens;
  const size_t searched = s.completion.text.size();
  if (!is_end) s.completion.text += s.detokenizer.push(sampled.token);
  if (is_end || is_full) s.completion.text += s.detokenizer.finish();
  const bool is_stopped = cut_at_stop(s, searched);
  if (!is_end && !is_full && !is_stopped) return false;
  end(sampled.request, is_end || is_stopped ? FinishReason::stop : FinishReason::length, now_s);
  return true;
}

// The earliest match in the text wins, whichever stop text it is; a match may have begun in text that was searched before.
bool Answers::cut_at_stop(Sequence& s, size_t searched) {
  size_t cut = std::string::npos;
  for (const std::string& stop : s.request.sampling.stop) {
    const size_t from = searched - std::min(searched, stop.size() - 1);
    cut = std::min(cut, s.completion.text.find(stop, from));
  }
  if (cut == std::string::npos) return false;
  s.completion.text.resize(cut);
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
  const std::string& custom_id = line.record.custom_id;
  if (line.fault) return fail_line(line.input, custom_id, *line.fault);
  const RecordContext context{.custom_id = custom_id,
                              .endpoint = line.record.endpoint,
                              .model = model_name_,
                              .token_text =
                                  [this](TokenId token) {
                                    std::string bytes = language_.tokenizer().token_bytes(token);
                                    return TokenText{lossy_utf8(bytes), std::move(bytes)};
                                  },
                              .n_prompt_tokens = line.n_prompt};
  std::string record = success_record(context, line.choices);
  finished_.push_back({line.input, custom_id, false, std::move(record), std::move(line.choices)});
}

std::vector<FinishedLine> Answers::take_finished() { return std::exchange(finished_, {}); }

}  // namespace lockstep
