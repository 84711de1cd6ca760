// The text side of a model: tokenizer, chat template, end-of-sequence ids, and the defaults a request falls back on.
// Turns a parsed line into sequences to generate. Only a replica's root needs one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "records/prompt_record.h"
#include "records/request.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace lockstep {

struct RequestDefaults {  // the command line's; a request's own value wins, generation_config.json fills what is still open
  std::optional<int64_t> max_tokens;
  std::optional<double> temperature, top_p;
  uint64_t seed = 0;
  std::optional<std::string> chat_template;  // the source of another template than the model's
  bool parse_content = false;                // a special token's text inside messages is that token, as in Transformers
};

class Language {
 public:
  // Reads tokenizer and template out of the checkpoint. A template that can't be parsed is refused here; a missing one is the
  // fault of each chat line.
  Language(const Checkpoint& checkpoint, const RequestDefaults& defaults, int64_t max_model_len);

  // One sequence for each prompt of the line and each of its n samples, `choice` counting up; ids are given later. Faults:
  // template, tokens, length, values that contradict the model or each other.
  Result<std::vector<Request>> requests_of(const PromptRecord& record) const;

  const Tokenizer& tokenizer() const { return tokenizer_; }
  int64_t vocab() const { return vocab_; }  // ids that exist both in the tokenizer and in the embedding

 private:
  Result<std::vector<TokenId>> tokens_of_chat(const PromptRecord& record) const;
  Result<std::vector<TokenId>> tokens_of_prompt(const PromptText& prompt) const;
  std::optional<Fault> unknown_token(const std::vector<TokenId>& tokens) const;
  Result<SamplingParams> sampling_of(const PromptRecord& record, int64_t n_prompt) const;

  Tokenizer tokenizer_;
  std::optional<ChatTemplate> chat_template_;
  std::vector<TokenId> eos_;
  GenerationDefaults generation_;
  RequestDefaults defaults_;
  int64_t max_model_len_;
  int64_t vocab_;
};

Tokenizer make_tokenizer(const Checkpoint& checkpoint);

}  // namespace lockstep
