#include "records/request.h"

namespace lockstep {

void put(ByteWriter& w, const Request& q) {
  w.put(q.id);
  w.put(q.line);
  w.put(q.choice);
  w.put_vector(q.prompt);
  const SamplingParams& s = q.sampling;
  w.put(s.max_tokens);
  w.put(s.min_tokens);
  w.put(s.temperature);
  w.put(s.top_p);
  w.put(s.top_k);
  w.put(s.min_p);
  w.put(s.presence_penalty);
  w.put(s.frequency_penalty);
  w.put(s.repetition_penalty);
  w.put<uint64_t>(s.logit_bias.size());
  for (const auto& [token, bias] : s.logit_bias) w.put(token), w.put(bias);
  w.put_vector(s.stop_token_ids);
  w.put<uint64_t>(s.stop.size());
  for (const std::string& text : s.stop) w.put_string(text);
  w.put(s.include_stop_str_in_output);
  w.put(s.n_logprobs);
  w.put(s.prompt_logprobs);
  w.put(q.draw_key);
}

Request get_request(ByteReader& r) {
  Request q;
  q.id = r.get<RequestId>();
  q.line = r.get<int64_t>();
  q.choice = r.get<int32_t>();
  q.prompt = r.get_vector<TokenId>();
  SamplingParams& s = q.sampling;
  s.max_tokens = r.get<int32_t>();
  s.min_tokens = r.get<int32_t>();
  s.temperature = r.get<float>();
  s.top_p = r.get<float>();
  s.top_k = r.get<int32_t>();
  s.min_p = r.get<float>();
  s.presence_penalty = r.get<float>();
  s.frequency_penalty = r.get<float>();
  s.repetition_penalty = r.get<float>();
  const auto n_bias = r.get<uint64_t>();
  for (uint64_t i = 0; i < n_bias; ++i) {
    const auto token = r.get<TokenId>();
    s.logit_bias.emplace_back(token, r.get<float>());
  }
  s.stop_token_ids = r.get_vector<TokenId>();
  const auto n_stop = r.get<uint64_t>();
  for (uint64_t i = 0; i < n_stop; ++i) s.stop.push_back(r.get_string());
  s.include_stop_str_in_output = r.get<bool>();
  s.n_logprobs = r.get<int32_t>();
  s.prompt_logprobs = r.get<bool>();
  q.draw_key = r.get<uint64_t>();
  return q;
}

}  // namespace lockstep
