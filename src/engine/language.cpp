#include "engine/language.h"

#include <algorithm>
#include <functional>

#include "base/hash.h"

namespace lockstep {

namespace {

constexpr int64_t kCompletionMaxTokens = 16;  // the OpenAI default of /v1/completions; chat runs to the end of the context

// The key of a choice's draws depends on who asks, not on where or when it runs: the request's own seed, or else the run's seed
// and the custom_id; and the choice among its line.
uint64_t draw_key(const PromptRecord& record, uint64_t run_seed, int32_t choice) {
  ByteWriter w;
  if (record.params.seed) {
    w.put_string("request");
    w.put(*record.params.seed);
  } else {
    w.put_string("run");
    w.put(run_seed);
    w.put_string(record.custom_id);
  }
  w.put(choice);
  const auto& bytes = w.bytes();
  return hash64({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

GgufVocab vocab_of(const GgufTokenizer& t) {
  return {.model = t.model,
          .pre = t.pre,
          .tokens = t.tokens,
          .scores = t.scores,
          .token_types = t.token_types,
          .merges = t.merges,
          .bos_id = t.bos_id,
          .eos_id = t.eos_id,
          .unk_id = t.unk_id,
          .pad_id = t.pad_id,
          .add_bos = t.add_bos,
          .add_eos = t.add_eos,
          .add_space_prefix = t.add_space_prefix};
}

// A text that an uncommon pattern can't split within its budget is that line's fault.
Result<std::vector<TokenId>> within_budget(const std::function<std::vector<TokenId>()>& encode) {
  try {
    return encode();
  } catch (const Error& e) {
    return Fault{"tokenizer_error", e.what()};
  }
}

template <class T>
T first_of(const std::optional<T>& a, const std::optional<T>& b, const std::optional<T>& c, T otherwise) {
  return a ? *a : b ? *b : c ? *c : otherwise;
}

}  // namespace

Tokenizer make_tokenizer(const Checkpoint& checkpoint) {
  if (const auto gguf = checkpoint.gguf_tokenizer()) return Tokenizer::from_gguf(vocab_of(*gguf));
  const std::string json = checkpoint.tokenizer_json();
  if (json.empty()) fail(ExitCode::unreadable, "the model has no tokenizer.json");
  return Tokenizer::from_json(json, checkpoint.tokenizer_config_json());
}

Language::Language(const Checkpoint& checkpoint, const RequestDefaults& defaults, int64_t max_model_len)
    : tokenizer_(make_tokenizer(checkpoint)),
      generation_(checkpoint.config().generation),
      defaults_(defaults),
      max_model_len_(max_model_len),
      vocab_(std::min<int64_t>(checkpoint.config().vocab, tokenizer_.n_tokens())) {
  const auto source = defaults_.chat_template ? defaults_.chat_template : checkpoint.chat_template();
  if (source) chat_template_ = ChatTemplate::parse(*source);
  eos_ = checkpoint.config().eos_token_ids;
  eos_.insert(eos_.end(), generation_.eos_token_ids.begin(), generation_.eos_token_ids.end());
  if (tokenizer_.eos()) eos_.push_back(*tokenizer_.eos());
}

Result<std::vector<Request>> Language::requests_of(const PromptRecord& record) const {
  std::vector<Request> requests;
  const size_t n = record.endpoint == Endpoint::chat_completions ? 1 : record.prompts.size();
  for (size_t i = 0; i < n; ++i) {
    const auto tokens =
        record.endpoint == Endpoint::chat_completions ? tokens_of_chat(record) : tokens_of_prompt(record.prompts[i]);
    if (!tokens.ok()) return tokens.fault();
    const auto sampling = sampling_of(record, static_cast<int64_t>(tokens.value().size()));
    if (!sampling.ok()) return sampling.fault();
    for (int64_t sample = 0; sample < record.params.n.value_or(1); ++sample) {
      const auto choice = static_cast<int32_t>(requests.size());
      requests.push_back({.id = 0,
                          .line = record.line,
                          .choice = choice,
                          .prompt = tokens.value(),
                          .sampling = sampling.value(),
                          .draw_key = draw_key(record, defaults_.seed, choice)});
    }
  }
  return requests;
}

Result<std::vector<TokenId>> Language::tokens_of_chat(const PromptRecord& record) const {
  if (!chat_template_) return Fault{"no_chat_template", "messages: the model has no chat template"};
  auto pieces = chat_template_->render({.messages = record.messages,
                                        .tools = record.tools,
                                        .kwargs = record.chat_template_kwargs,
                                        .add_generation_prompt = record.add_generation_prompt,
                                        .continue_final_message = record.continue_final_message,
                                        .bos_text = tokenizer_.bos_text(),
                                        .eos_text = tokenizer_.eos_text()});
  if (!pieces.ok()) return pieces.fault();
  auto encoded = within_budget([&] { return tokenizer_.encode(pieces.value(), false, defaults_.parse_content); });
  if (!encoded.ok()) return encoded;
  std::vector<TokenId> tokens = std::move(encoded.value());
  if (tokens.empty()) return Fault{"empty_prompt", "messages: the chat template made an empty prompt of them"};
  if (auto fault = unknown_token(tokens)) return *fault;
  return tokens;
}

// An added token may lie beyond the embedding's rows.
std::optional<Fault> Language::unknown_token(const std::vector<TokenId>& tokens) const {
  for (const TokenId token : tokens)
    if (token < 0 || token >= vocab_)
      return Fault{"invalid_token", concat("prompt: token id ", token, " is not one of the model's ", vocab_)};
  return std::nullopt;
}

Result<std::vector<TokenId>> Language::tokens_of_prompt(const PromptText& prompt) const {
  std::vector<TokenId> tokens;
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&prompt))
    tokens = *ids;
  else if (auto encoded = within_budget([&] { return tokenizer_.encode(std::get<std::string>(prompt), true); }); encoded.ok())
    tokens = std::move(encoded.value());
  else
    return encoded;
  if (tokens.empty()) return Fault{"empty_prompt", "prompt: has no tokens"};
  if (auto fault = unknown_token(tokens)) return *fault;
  return tokens;
}

Result<SamplingParams> Language::sampling_of(const PromptRecord& record, int64_t n_prompt) const {
  const RequestParams& p = record.params;
  const int64_t room = max_model_len_ - n_prompt;
  const bool is_chat = record.endpoint == Endpoint::chat_completions;
  const int64_t wanted =
      first_of<int64_t>(p.max_tokens, defaults_.max_tokens, generation_.max_new_tokens, is_chat ? room : kCompletionMaxTokens);
  if (room < 0 || (room == 0 && (wanted > 0 || is_chat)))
    return Fault{"context_length_exceeded",
                 concat("prompt: ", n_prompt, " tokens", room == 0 ? " leave no room for an answer" : "",
                        ", the context holds ", max_model_len_)};
  SamplingParams s;
  s.max_tokens = static_cast<int32_t>(std::min(wanted, room));
  s.min_tokens = static_cast<int32_t>(p.min_tokens.value_or(0));
  if (s.min_tokens > s.max_tokens)
    return Fault{"invalid_parameter", concat("min_tokens: ", s.min_tokens, " is more than max_tokens, ", s.max_tokens)};
  s.temperature = static_cast<float>(first_of(p.temperature, defaults_.temperature, generation_.temperature, 1.0));
  s.top_p = static_cast<float>(first_of(p.top_p, defaults_.top_p, generation_.top_p, 1.0));
  s.top_k =
      static_cast<int32_t>(std::clamp<int64_t>(first_of<int64_t>(p.top_k, std::nullopt, generation_.top_k, 0), 0, vocab_));
  s.min_p = static_cast<float>(first_of<double>(p.min_p, std::nullopt, generation_.min_p, 0.0));
  s.presence_penalty = static_cast<float>(p.presence_penalty.value_or(0));
  s.frequency_penalty = static_cast<float>(p.frequency_penalty.value_or(0));
  s.repetition_penalty =
      static_cast<float>(first_of<double>(p.repetition_penalty, std::nullopt, generation_.repetition_penalty, 1.0));
  s.logit_bias = p.logit_bias;
  for (const auto& [token, bias] : s.logit_bias)
    if (token < 0 || token >= vocab_)
      return Fault{"invalid_parameter", concat("logit_bias: token id ", token, " is not one of the model's ", vocab_)};
  s.stop_token_ids = p.stop_token_ids;
  if (!p.ignore_eos.value_or(false)) s.stop_token_ids.insert(s.stop_token_ids.end(), eos_.begin(), eos_.end());
  std::erase_if(s.stop_token_ids, [this](TokenId token) { return token < 0 || token >= vocab_; });
  s.stop = p.stop;
  s.include_stop_str_in_output = p.include_stop_str_in_output.value_or(false);
  s.n_logprobs = static_cast<int32_t>(p.n_logprobs.value_or(-1));
  s.prompt_logprobs = p.echo.value_or(false) && s.n_logprobs >= 0;
  return s;
}

}  // namespace lockstep
