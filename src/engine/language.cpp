#include "engine/language.h"

#include <algorithm>

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
  if (const auto source = checkpoint.chat_template()) chat_template_ = ChatTemplate::parse(*source);
  eos_ = checkpoint.config().eos_token_ids;
  eos_.insert(eos_.end(), generation_.eos_token_ids.begin(), generation_.eos_token_ids.end());
  if (tokenizer_.eos()) eos_.push_back(*tokenizer_.eos());
}

bool Language::ends(TokenId token) const { return std::find(eos_.begin(), eos_.end(), token) != eos_.end(); }

Result<std::vector<Request>> Language::requests_of(const PromptRecord& record) const {
  std::vector<Request> requests;
  const size_t n = record.endpoint == Endpoint::chat_completions ? 1 : record.prompts.size();
  for (size_t i = 0; i < n; ++i) {
    auto tokens = record.endpoint == Endpoint::chat_completions ? tokens_of_chat(record) : tokens_of_prompt(record.prompts[i]);
    if (!tokens.ok()) return tokens.fault();
    auto sampling = sampling_of(record, static_cast<int64_t>(tokens.value().size()));
    if (!sampling.ok()) return sampling.fault();
    const auto choice = static_cast<int32_t>(requests.size());
    requests.push_back({.id = 0,
                        .line = record.line,
                        .choice = choice,
                        .prompt = std::move(tokens.value()),
                        .sampling = std::move(sampling.value()),
                        .draw_key = draw_key(record, defaults_.seed, choice)});
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
  return tokenizer_.encode(pieces.value(), false, false);
}

Result<std::vector<TokenId>> Language::tokens_of_prompt(const PromptText& prompt) const {
  std::vector<TokenId> tokens;
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&prompt))
    tokens = *ids;
  else
    tokens = tokenizer_.encode(std::get<std::string>(prompt), true);
  if (tokens.empty()) return Fault{"empty_prompt", "prompt: has no tokens"};
  for (const TokenId token : tokens)
    if (token < 0 || token >= vocab_)
      return Fault{"invalid_token", concat("prompt: token id ", token, " is not one of the model's ", vocab_)};
  return tokens;
}

Result<SamplingParams> Language::sampling_of(const PromptRecord& record, int64_t n_prompt) const {
  const RequestParams& p = record.params;
  const int64_t room = max_model_len_ - n_prompt;
  const int64_t wanted = first_of<int64_t>(p.max_tokens, defaults_.max_tokens, std::nullopt,
                                           record.endpoint == Endpoint::chat_completions ? room : kCompletionMaxTokens);
  if (room < std::min<int64_t>(wanted, 1))
    return Fault{"context_length_exceeded", concat("prompt: ", n_prompt, " tokens, the context holds ", max_model_len_)};
  if (room < 1 && wanted > 0)
    return Fault{"context_length_exceeded",
                 concat("prompt: ", n_prompt, " tokens leave no room for an answer in a context of ", max_model_len_)};
  SamplingParams s;
  s.max_tokens = static_cast<int32_t>(std::min(wanted, room));
  s.temperature = static_cast<float>(first_of(p.temperature, defaults_.temperature, generation_.temperature, 1.0));
  s.top_p = static_cast<float>(first_of(p.top_p, defaults_.top_p, generation_.top_p, 1.0));
  s.top_k = static_cast<int32_t>(
      std::clamp<int64_t>(first_of<int64_t>(p.top_k, generation_.top_k, std::nullopt, 0), 0, vocab_));
  s.ignore_eos = p.ignore_eos.value_or(false);
  s.stop = p.stop;
  s.n_logprobs = static_cast<int32_t>(p.n_logprobs.value_or(-1));
  return s;
}

}  // namespace lockstep
