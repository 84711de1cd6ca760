// The records as they are written: byte for byte where the eye can judge, and always strict JSON.
#include "journal/output_record.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"
#include "base/utf8.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

// Strict: no duplicate keys (nlohmann keeps the last one silently).
ordered_json strict(std::string_view text) {
  std::vector<std::vector<std::string>> keys;
  const ordered_json value = ordered_json::parse(text, [&](int, ordered_json::parse_event_t event, ordered_json& parsed) {
    if (event == ordered_json::parse_event_t::object_start) keys.emplace_back();
    if (event == ordered_json::parse_event_t::object_end) keys.pop_back();
    if (event == ordered_json::parse_event_t::key) {
      for (const std::string& known : keys.back()) EXPECT_NE(known, parsed.get<std::string>()) << "twice in " << text;
      keys.back().push_back(parsed.get<std::string>());
    }
    return true;
  });
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_EQ(find_invalid_utf8(text), std::string::npos);
  return value;
}

const std::map<TokenId, std::string> kVocabulary = {{1, " Paris"},  {2, " the"}, {3, " London"}, {4, "\xF0\x9F\x91"},
                                                    {5, "\x8D"},    {6, " a"},   {7, "ж"},       {8, " Paris"},
                                                    {9, "\xF0\x9F"}};

RecordContext context(Endpoint endpoint, const std::string& id = "a") {
  return {
      .custom_id = id,
      .endpoint = endpoint,
      .model = "m",
      .token_text =
          [](TokenId token) {
            return token == 0 ? TokenText{"<end>", ""} : TokenText{lossy_utf8(kVocabulary.at(token)), kVocabulary.at(token)};
          },
      .n_prompt_tokens = 5};
}

Completion completion(std::string text, std::vector<TokenId> tokens, FinishReason reason = FinishReason::length) {
  Completion c;
  c.text = std::move(text);
  c.tokens = std::move(tokens);
  c.reason = reason;
  return c;
}

const std::string kHex = digest128("a").hex();

TEST(OutputRecord, Completion) {
  EXPECT_EQ(
      success_record(context(Endpoint::completions), {completion(" Paris", {1, 0}, FinishReason::stop)}),
      R"({"id":"batch_req_)" + kHex + R"(","custom_id":"a","response":{"status_code":200,"request_id":"req_)" + kHex +
          R"(","body":{"id":"cmpl-)" + kHex +
          R"(","object":"text_completion","created":0,"model":"m","choices":[{"index":0,"text":" Paris","logprobs":null,"finish_reason":"stop"}],)"
          R"("usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}},"error":null})");
}

TEST(OutputRecord, Chat) {
  EXPECT_EQ(
      success_record(context(Endpoint::chat_completions), {completion("Hi \"you\"\n", {1})}),
      R"({"id":"batch_req_)" + kHex + R"(","custom_id":"a","response":{"status_code":200,"request_id":"req_)" + kHex +
          R"(","body":{"id":"chatcmpl-)" + kHex +
          R"(","object":"chat.completion","created":0,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hi \"you\"\n","refusal":null},"logprobs":null,"finish_reason":"length"}],)"
          R"("usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6}}},"error":null})");
}

TEST(OutputRecord, SeveralChoices) {
  std::vector<Completion> choices = {completion("x", {1, 2, 3}), completion("", {}), completion("z", {1})};
  for (int i = 0; i < 3; ++i) choices[i].choice = i;
  const auto body = strict(success_record(context(Endpoint::completions), choices))["response"]["body"];
  EXPECT_EQ(body["choices"][2]["index"], 2);
  EXPECT_EQ(body["choices"][1]["text"], "");
  EXPECT_EQ(body["usage"].dump(), R"({"prompt_tokens":5,"completion_tokens":4,"total_tokens":9})");
}

TEST(OutputRecord, AChoiceThatFailedIsNoSuccess) {
  EXPECT_THROW(success_record(context(Endpoint::completions), {completion("", {}, FinishReason::error)}), Error);
}

TEST(OutputRecord, TextIsStrictJson) {
  std::string text;
  for (char c = 0; c < 0x20; ++c) text += c;
  text += "\"\\/\x7F ж👍";
  EXPECT_EQ(
      strict(success_record(context(Endpoint::completions), {completion(text, {})}))["response"]["body"]["choices"][0]["text"],
      text);
  const std::string lines = success_record(context(Endpoint::completions), {completion("a\xE2\x80\xA8"
                                                                                       "b\xE2\x80\xA9"
                                                                                       "c\xE2\x80\xAA",
                                                                                       {})});
  EXPECT_NE(lines.find(R"("text":"a\u2028b\u2029c)"
                       "\xE2\x80\xAA\""),
            std::string::npos)
      << lines;
  const std::string bad = success_record(context(Endpoint::completions), {completion("a\xFFz\xF0\x9F", {})});
  EXPECT_EQ(strict(bad)["response"]["body"]["choices"][0]["text"], "a\xEF\xBF\xBDz\xEF\xBF\xBD");
}

TEST(OutputRecord, CustomIdComesBack) {
  for (const std::string id : {"ключ-界-👍", " \"q\"\n\\/ ", "a\xE2\x80\xA8"}) {
    EXPECT_EQ(strict(success_record(context(Endpoint::completions, id), {}))["custom_id"], id);
    EXPECT_EQ(strict(error_record(id, {"c", "m"}))["custom_id"], id);
  }
}

SampledToken sampled(TokenId token, float logprob, std::vector<std::pair<TokenId, float>> top = {}) {
  SampledToken s;
  s.token = token;
  s.logprob = logprob;
  s.top = std::move(top);
  return s;
}

std::string logprobs_of(Endpoint endpoint, const std::string& text, std::vector<SampledToken> tokens) {
  Completion c = completion(text, {});
  c.logprobs = std::move(tokens);
  return strict(success_record(context(endpoint), {c}))["response"]["body"]["choices"][0]["logprobs"].dump();
}

TEST(OutputRecord, CompletionLogprobs) {
  EXPECT_EQ(
      logprobs_of(Endpoint::completions, " Paris the",
                  {sampled(1, -0.25f, {{1, -0.25f}, {2, -2.75f}}), sampled(2, -3.5f, {{3, -1.f}})}),
      R"({"tokens":[" Paris"," the"],"token_logprobs":[-0.25,-3.5],"top_logprobs":[{" Paris":-0.25," the":-2.75},{" London":-1.0," the":-3.5}],"text_offset":[0,6]})");
  EXPECT_EQ(logprobs_of(Endpoint::completions, " Paris", {sampled(1, -0.25f)}),  // logprobs 0
            R"({"tokens":[" Paris"],"token_logprobs":[-0.25],"top_logprobs":[{}],"text_offset":[0]})");
}

TEST(OutputRecord, ChatLogprobs) {
  EXPECT_EQ(
      logprobs_of(Endpoint::chat_completions, " a", {sampled(6, -0.5f, {{7, -0.25f}}), sampled(0, 0.f)}),
      R"({"content":[{"token":" a","logprob":-0.5,"bytes":[32,97],"top_logprobs":[{"token":"ж","logprob":-0.25,"bytes":[208,182]}]},)"
      R"({"token":"<end>","logprob":0.0,"bytes":null,"top_logprobs":[]}],"refusal":null})");
}

TEST(OutputRecord, PartsOfCharactersKeepTheirBytes) {
  const auto chat =
      ordered_json::parse(logprobs_of(Endpoint::chat_completions, " a👍", {sampled(6, -1), sampled(4, -1), sampled(5, -1)}));
  std::string joined;
  for (const auto& token : chat["content"])
    for (const int byte : token["bytes"]) joined += static_cast<char>(byte);
  EXPECT_EQ(joined, " a👍");
  EXPECT_EQ(chat["content"][1]["token"], "\xEF\xBF\xBD");
  EXPECT_EQ(
      logprobs_of(Endpoint::completions, " a👍ж",
                  {sampled(6, -1, {{6, -1}}), sampled(4, -1, {{4, -1}, {9, -2}}), sampled(5, -1), sampled(7, -1)}),
      R"({"tokens":[" a","bytes:\\xf0\\x9f\\x91","bytes:\\x8d","ж"],"token_logprobs":[-1.0,-1.0,-1.0,-1.0],)"
      R"("top_logprobs":[{" a":-1.0},{"bytes:\\xf0\\x9f\\x91":-1.0,"bytes:\\xf0\\x9f":-2.0},{},{}],"text_offset":[0,2,2,3]})");
}

TEST(OutputRecord, TokensWithTheSameTextShareAKey) {
  EXPECT_EQ(
      ordered_json::parse(logprobs_of(Endpoint::completions, " Paris", {sampled(8, -3, {{1, -0.5f}, {8, -3}})}))["top_logprobs"]
          .dump(),
      R"([{" Paris":-0.5}])");
}

TEST(OutputRecord, OffsetsStayInTheText) {  // a stop text was cut off, an end token adds nothing
  EXPECT_EQ(ordered_json::parse(
                logprobs_of(Endpoint::completions, " Par", {sampled(1, -1), sampled(2, -1), sampled(0, -1)}))["text_offset"]
                .dump(),
            "[0,4,4]");
}

TEST(OutputRecord, NumbersAreFixedShortAndFinite) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  const std::pair<float, std::string> cases[] = {
      {-0.258f, "-0.258"},       {-0.f, "0.0"},     {-1e-7f, "-0.0000001"}, {-12.f, "-12.0"},           {-0.1f, "-0.1"},
      {-1.f / 3, "-0.33333334"}, {-inf, "-9999.0"}, {inf, "-9999.0"},       {std::nanf(""), "-9999.0"}, {-1e30f, "-9999.0"},
      {-9998.5f, "-9998.5"},
  };
  for (const auto& [value, text] : cases) {
    Completion c = completion("", {});
    c.logprobs = {sampled(6, value)};
    const std::string record = success_record(context(Endpoint::completions), {c});
    EXPECT_NE(record.find("\"token_logprobs\":[" + text + "]"), std::string::npos) << record;
    strict(record);
  }
  Completion tiny = completion("", {});
  tiny.logprobs = {sampled(6, -std::numeric_limits<float>::denorm_min()), sampled(6, -std::numeric_limits<float>::min())};
  const auto values = strict(
      success_record(context(Endpoint::completions), {tiny}))["response"]["body"]["choices"][0]["logprobs"]["token_logprobs"];
  EXPECT_EQ(values[0].get<float>(), -std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(values[1].get<float>(), -std::numeric_limits<float>::min());
}

TEST(OutputRecord, ErrorsGetTheirLineAtTheEnd) {
  const std::string record = error_record("a", {"invalid_json", "column 3: \"x\""});
  EXPECT_EQ(record, R"({"id":"batch_req_)" + kHex +
                        R"(","custom_id":"a","response":null,"error":{"code":"invalid_json","message":"column 3: \"x\""}})");
  EXPECT_EQ(error_record_at_line(record, 12),
            R"({"id":"batch_req_)" + kHex +
                R"(","custom_id":"a","response":null,"error":{"code":"invalid_json","message":"line 12: column 3: \"x\""}})");
  const std::string success = success_record(context(Endpoint::chat_completions), {completion("\"message\":\"", {1})});
  EXPECT_EQ(error_record_at_line(success, 12), success);
  EXPECT_THROW(error_record_at_line("{}", 12), Error);
}

TEST(OutputRecord, NoTextCanForgeTheMessage) {
  const std::string id = R"(","message":"forged)";
  const auto at_line = strict(error_record_at_line(error_record(id, {"c", R"(,"error":null})"}), 3));
  EXPECT_EQ(at_line["custom_id"], id);
  EXPECT_EQ(at_line["error"]["message"], R"(line 3: ,"error":null})");
}

}  // namespace
}  // namespace lockstep
