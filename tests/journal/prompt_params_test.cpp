// The parameters: one by one, at the borders of their ranges, with wrong types, by unknown names, and together.
#include <gtest/gtest.h>

#include "base/error.h"
#include "journal/prompt_reader.h"

namespace lockstep {
namespace {

PromptRecord text_line(const std::string& parameters) { return parse_prompt(R"({"prompt": "x", )" + parameters + "}", 1); }
PromptRecord chat_line(const std::string& parameters) {
  return parse_prompt(R"({"messages": [{"role": "user", "content": "x"}], )" + parameters + "}", 1);
}
std::string fault_of(const PromptRecord& r) { return r.fault ? r.fault->code + " " + r.fault->message : ""; }
std::string fault_of(const std::string& parameters) { return fault_of(text_line(parameters)); }

TEST(PromptParams, AllOfThemAreRead) {
  const PromptRecord r = text_line(
      R"("max_tokens": 8.0, "min_tokens": 2, "n": 3, "top_k": -1, "temperature": 0.5, "top_p": 1, "min_p": 0.1, "presence_penalty": -2,
         "frequency_penalty": 2, "repetition_penalty": 1.1, "seed": -9223372036854775808, "ignore_eos": true,
         "include_stop_str_in_output": false, "echo": true, "stop": ["a", "\n"], "stop_token_ids": [28, 0], "logit_bias": {"50": -100, "7": 1.5},
         "logprobs": 0)");
  ASSERT_EQ(fault_of(r), "");
  const RequestParams& p = r.params;
  EXPECT_EQ(p.max_tokens, 8);
  EXPECT_EQ(p.min_tokens, 2);
  EXPECT_EQ(p.n, 3);
  EXPECT_EQ(p.top_k, -1);
  EXPECT_EQ(p.temperature, 0.5);
  EXPECT_EQ(p.top_p, 1.0);
  EXPECT_EQ(p.min_p, 0.1);
  EXPECT_EQ(p.presence_penalty, -2.0);
  EXPECT_EQ(p.frequency_penalty, 2.0);
  EXPECT_EQ(p.repetition_penalty, 1.1);
  EXPECT_EQ(p.seed, INT64_MIN);
  EXPECT_EQ(p.ignore_eos, true);
  EXPECT_EQ(p.include_stop_str_in_output, false);
  EXPECT_EQ(p.echo, true);
  EXPECT_EQ(p.stop, (std::vector<std::string>{"a", "\n"}));
  EXPECT_EQ(p.stop_token_ids, (std::vector<TokenId>{28, 0}));
  EXPECT_EQ(p.logit_bias, (std::vector<std::pair<TokenId, float>>{{7, 1.5f}, {50, -100.f}}));
  EXPECT_EQ(p.n_logprobs, 0);

  const PromptRecord c = chat_line(
      R"("max_completion_tokens": 5, "logprobs": true, "top_logprobs": 20, "continue_final_message": true, "tools": [{"a": 1}], "chat_template_kwargs": {"b": [2]})");
  ASSERT_EQ(fault_of(c), "");
  EXPECT_EQ(c.params.max_tokens, 5);
  EXPECT_EQ(c.params.n_logprobs, 20);
  EXPECT_TRUE(c.continue_final_message);
  EXPECT_FALSE(c.add_generation_prompt);
  EXPECT_EQ(c.tools, R"([{"a": 1}])");
  EXPECT_EQ(c.chat_template_kwargs, R"({"b": [2]})");
}

TEST(PromptParams, NullIsLeftOut) {
  const PromptRecord r =
      text_line(R"("max_tokens": null, "temperature": null, "stop": null, "logit_bias": null, "logprobs": null, "echo": null,
      "response_format": null, "top_logprobs": null, "stream": null, "suffix": null)");
  EXPECT_EQ(fault_of(r), "");
  EXPECT_FALSE(r.params.max_tokens || r.params.temperature || r.params.n_logprobs || r.params.echo);
  EXPECT_EQ(fault_of(R"("temprature": null)"), "unknown_parameter unknown parameter 'temprature', did you mean 'temperature'?");
}

TEST(PromptParams, ValuesAtTheBordersPass) {
  for (const std::string good : {R"("max_tokens": 0)",
                                 R"("max_tokens": 2147483647)",
                                 R"("max_tokens": 1e6)",
                                 R"("temperature": 0)",
                                 R"("temperature": 2)",
                                 R"("temperature": 1e-45)",
                                 R"("temperature": 1e-400)",
                                 R"("top_p": 1e-300)",
                                 R"("top_k": 0)",
                                 R"("min_p": 1)",
                                 R"("n": 1)",
                                 R"("n": 128)",
                                 R"("seed": 9223372036854775807)",
                                 R"("logprobs": 20)",
                                 R"("stop": [])",
                                 R"("stop": "x")",
                                 R"("stop_token_ids": [])",
                                 R"("logit_bias": {})",
                                 R"("repetition_penalty": 0.01)",
                                 R"("stop": ["1","2","3","4","5"])"})
    EXPECT_EQ(fault_of(good), "") << good;
}

TEST(PromptParams, FaultsNameFieldAndValue) {
  const std::pair<std::string, std::string> cases[] = {
      {R"("max_tokens": "8")", R"(max_tokens: "8" is a string, expected an integer)"},
      {R"("max_tokens": 8.5)", "max_tokens: 8.5 is not an integer"},
      {R"("max_tokens": -1)", "max_tokens: -1 is not in [0, 2147483647]"},
      {R"("max_tokens": 1e300)", "max_tokens: 1e300 is not an integer"},
      {R"("max_tokens": true)", "max_tokens: true is a boolean, expected an integer"},
      {R"("max_tokens": 18446744073709551615)", "max_tokens: 18446744073709551615 is not in [0, 2147483647]"},
      {R"("max_tokens": 4, "max_completion_tokens": 5)", "max_tokens: 4 and max_completion_tokens: 5 differ"},
      {R"("max_tokens": 16, "min_tokens": 20)", "min_tokens: 20 is more than max_tokens: 16"},
      {R"("n": 0)", "n: 0 is not in [1, 128]"},
      {R"("n": 129)", "n: 129 is not in [1, 128]"},
      {R"("temperature": -0.1)", "temperature: -0.1 is not in [0, 2]"},
      {R"("temperature": 2.01)", "temperature: 2.01 is not in [0, 2]"},
      {R"("temperature": "0")", R"(temperature: "0" is a string, expected a number)"},
      {R"("top_p": 1.5)", "top_p: 1.5 is not in (0, 1]"},
      {R"("top_p": 0)", "top_p: 0 is not in (0, 1]"},
      {R"("top_k": -2)", "top_k: -2 is not in [-1, 2147483647]"},
      {R"("min_p": -0.5)", "min_p: -0.5 is not in [0, 1]"},
      {R"("presence_penalty": 2.5)", "presence_penalty: 2.5 is not in [-2, 2]"},
      {R"("repetition_penalty": 0)", "repetition_penalty: 0 is not in [0.01, 100]"},
      {R"("seed": 9223372036854775808)", "seed: 9223372036854775808 is not in [-9223372036854775808, 9223372036854775807]"},
      {R"("seed": [1])", "seed: [1] is an array, expected an integer"},
      {R"("ignore_eos": 1)", "ignore_eos: 1 is a number, expected true or false"},
      {R"("echo": "yes")", R"(echo: "yes" is a string, expected true or false)"},
      {R"("stop": "")", "stop: an empty string would match everywhere"},
      {R"("stop": ["10", ""])", "stop[1]: an empty string would match everywhere"},
      {R"("stop": 7)", "stop: 7 is a number, expected a string or a list of strings"},
      {R"("stop": ["a", null])", "stop[1]: null, expected a string"},
      {R"("stop": ")" + std::string(1025, 's') + "\"", "stop: 1025 bytes, at most 1024 are allowed"},
      {R"("stop_token_ids": 28)", "stop_token_ids: 28 is a number, expected a list of token ids"},
      {R"("stop_token_ids": [28, -1])", "stop_token_ids[1]: -1 is not in [0, 2147483647]"},
      {R"("logit_bias": [])", "logit_bias: [] is an array, expected an object"},
      {R"("logit_bias": {"a": 1})", R"(logit_bias: key "a" is not a token id)"},
      {R"("logit_bias": {"01": 1})", R"(logit_bias: key "01" is not a token id)"},
      {R"("logit_bias": {"-1": 1})", R"(logit_bias: key "-1" is not a token id)"},
      {R"("logit_bias": {"2147483648": 1})", R"(logit_bias: key "2147483648" is not a token id)"},
      {R"("logit_bias": {"5": 101})", "logit_bias[5]: 101 is not in [-100, 100]"},
      {R"("logit_bias": {"5": "1"})", R"(logit_bias[5]: "1" is a string, expected a number)"},
      {R"("logprobs": 21)", "logprobs: 21 is not in [0, 20]"},
      {R"("logprobs": true)", "logprobs: true is a boolean, expected an integer"},
      {R"("stream": 1)", "stream: 1 is a number, expected true or false"},
      {R"("seed": ")" + std::string(100, 'z') + "\"",
       "seed: \"" + std::string(56, 'z') + "... is a string, expected an integer"},
  };
  for (const auto& [parameters, message] : cases) EXPECT_EQ(fault_of(parameters), "invalid_parameter " + message);
}

TEST(PromptParams, ListsHaveLimits) {
  std::string stops = "\"a\"", ids = "1", biases = "\"0\":1";
  for (int i = 1; i <= 64; ++i) stops += ",\"a\"";
  for (int i = 1; i <= 1024; ++i) ids += ",1", biases += ",\"" + std::to_string(i) + "\":1";
  EXPECT_EQ(fault_of("\"stop\": [" + stops + "]"), "invalid_parameter stop: more than 64 strings");
  EXPECT_EQ(fault_of("\"stop_token_ids\": [" + ids + "]"), "invalid_parameter stop_token_ids: more than 1024 ids");
  EXPECT_EQ(fault_of("\"logit_bias\": {" + biases + "}"), "invalid_parameter logit_bias: more than 1024 tokens");
}

TEST(PromptParams, ChatHasItsOwnRules) {
  EXPECT_EQ(chat_line(R"("logprobs": true)").params.n_logprobs, 0);
  EXPECT_EQ(chat_line(R"("logprobs": false)").params.n_logprobs, std::nullopt);
  EXPECT_EQ(chat_line(R"("add_generation_prompt": false)").add_generation_prompt, false);
  EXPECT_EQ(fault_of(chat_line(R"("top_logprobs": 0)")), "");
  const std::pair<std::string, std::string> cases[] = {
      {R"("top_logprobs": 3)", "invalid_parameter top_logprobs: 3 needs logprobs: true"},
      {R"("top_logprobs": 3, "logprobs": false)", "invalid_parameter top_logprobs: 3 needs logprobs: true"},
      {R"("top_logprobs": 21, "logprobs": true)", "invalid_parameter top_logprobs: 21 is not in [0, 20]"},
      {R"("logprobs": 5)", "invalid_parameter logprobs: 5 is a number, expected true or false"},
      {R"("continue_final_message": true, "add_generation_prompt": true)",
       "invalid_parameter continue_final_message and add_generation_prompt can't both be true"},
      {R"("echo": true)", "unsupported_parameter echo: true is not supported for chat"},
      {R"("tools": {})", "invalid_parameter tools: {} is an object, expected a list of objects"},
      {R"("tools": [1])", "invalid_parameter tools[0]: 1 is a number, expected an object"},
      {R"("chat_template_kwargs": [])", "invalid_parameter chat_template_kwargs: [] is an array, expected an object"},
  };
  for (const auto& [parameters, message] : cases) EXPECT_EQ(fault_of(chat_line(parameters)), message);
  EXPECT_EQ(fault_of(R"("tools": [])"),
            "invalid_request tools belongs to /v1/chat/completions, this is a request for /v1/completions");
}

TEST(PromptParams, HarmlessNamesPass) {
  EXPECT_EQ(fault_of(R"("user": "u", "metadata": {"a": [1, {"b": null}]}, "store": true, "service_tier": "x", "priority": 3)"),
            "");
}

TEST(PromptParams, KnownNamesPassWithNeutralValuesOnly) {
  for (const std::string neutral :
       {R"("best_of": 1)", R"("best_of": 1.0)", R"("suffix": "")", R"("response_format": { "type" : "text" })",
        R"("use_beam_search": false)", R"("length_penalty": 1.0)", R"("skip_special_tokens": true)",
        R"("add_special_tokens": true)", R"("bad_words": [ ])"})
    EXPECT_EQ(fault_of(neutral), "") << neutral;
  EXPECT_EQ(fault_of(chat_line(R"("tool_choice": "auto", "add_special_tokens": false)")), "");
  const std::pair<std::string, std::string> cases[] = {
      {R"("best_of": 3)", "best_of: 3"},
      {R"("suffix": "end")", "suffix: \"end\""},
      {R"("response_format": {"type":"json_schema"})", "response_format: {\"type\":\"json_schema\"}"},
      {R"("response_format": {"type":"te xt"})", "response_format: {\"type\":\"te xt\"}"},
      {R"("response_format": "text")", "response_format: \"text\""},
      {R"("guided_regex": "a+")", "guided_regex: \"a+\""},
      {R"("use_beam_search": true)", "use_beam_search: true"},
      {R"("add_special_tokens": false)", "add_special_tokens: false"},
      {R"("bad_words": ["[]"])", "bad_words: [\"[]\"]"},
  };
  for (const auto& [parameters, message] : cases)
    EXPECT_EQ(fault_of(parameters), "unsupported_parameter " + message + " is not supported");
}

TEST(PromptParams, UnknownNamesGetASuggestion) {
  const std::pair<std::string, std::string> cases[] = {
      {"max_token", "', did you mean 'max_tokens'?"},
      {"temprature", "', did you mean 'temperature'?"},
      {"max_new_tokens", "', did you mean 'max_tokens'?"},
      {"Temperature", "', did you mean 'temperature'?"},
      {"topp", "', did you mean 'top_p'?"},
      {"zzz", "'"},
      {"label", "'"},
      {"", "'"},
  };
  for (const auto& [name, end] : cases)
    EXPECT_EQ(fault_of("\"" + name + "\": 1"), "unknown_parameter unknown parameter '" + name + end);
  EXPECT_EQ(fault_of(concat("\"", std::string(5000, 'k'), "\": 1")),
            "unknown_parameter unknown parameter '" + std::string(57, 'k') + "...'");
}

}  // namespace
}  // namespace lockstep
