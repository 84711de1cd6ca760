// The forms of a line: batch and bare, ids, prompts, messages.
#include "journal/prompt_reader.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace lockstep {
namespace {

PromptRecord parsed(std::string_view text) { return parse_prompt(text, 7); }

std::string fault_of(std::string_view text) {
  const PromptRecord record = parsed(text);
  return record.fault ? record.fault->code + " " + record.fault->message : "";
}

std::string batch(const std::string& body, const std::string& url = "/v1/completions") {
  return R"({"custom_id":"a","method":"POST","url":")" + url + R"(","body":)" + body + "}";
}

TEST(PromptReader, BatchCompletion) {
  const PromptRecord r = parsed(
      R"({"custom_id": "a-1", "method": "POST", "url": "/v1/completions", "body": {"model": "m", "prompt": "1, 2,\n", "max_tokens": 8, "temperature": 0, "stop": "\n"}})");
  ASSERT_FALSE(r.fault) << r.fault->message;
  EXPECT_EQ(r.line, 7);
  EXPECT_EQ(r.custom_id, "a-1");
  EXPECT_EQ(r.endpoint, Endpoint::completions);
  EXPECT_EQ(r.model, "m");
  EXPECT_EQ(r.prompts, std::vector<PromptText>{"1, 2,\n"});
  EXPECT_FALSE(r.prompt_is_list);
  EXPECT_EQ(r.params.max_tokens, 8);
  EXPECT_EQ(r.params.temperature, 0.0);
  EXPECT_EQ(r.params.stop, std::vector<std::string>{"\n"});
  EXPECT_FALSE(r.params.top_p || r.params.seed || r.params.n_logprobs);
}

TEST(PromptReader, BatchChat) {
  const PromptRecord r = parsed(batch(R"({"messages": [{"role": "user", "content": "Hi"}]})", "/v1/chat/completions"));
  ASSERT_FALSE(r.fault) << r.fault->message;
  EXPECT_EQ(r.endpoint, Endpoint::chat_completions);
  EXPECT_EQ(r.messages, R"([{"role": "user", "content": "Hi"}])");
  EXPECT_TRUE(r.prompts.empty());
  EXPECT_TRUE(r.add_generation_prompt);
}

TEST(PromptReader, BareLines) {
  const PromptRecord raw = parsed(R"({"prompt": "x", "max_tokens": 3})");
  EXPECT_FALSE(raw.fault);
  EXPECT_EQ(raw.custom_id, "line-7");
  EXPECT_EQ(raw.params.max_tokens, 3);
  const PromptRecord chat = parsed(R"({"id": "q", "messages": [{"role": "user", "content": ""}], "prompt": null})");
  EXPECT_FALSE(chat.fault);
  EXPECT_EQ(chat.custom_id, "q");
  EXPECT_EQ(chat.endpoint, Endpoint::chat_completions);
  EXPECT_EQ(parsed(R"({"id": "q", "custom_id": "c", "prompt": "x"})").custom_id, "c");
  EXPECT_EQ(parsed(R"({"id": "q", "custom_id": null, "prompt": "x"})").custom_id, "q");
}

TEST(PromptReader, CustomIdsComeBackByteForByte) {
  for (const std::string id : {"a/b ../c", "ключ-界-👍", " x ", "\"q\"\n\\", "null"}) {
    const PromptRecord r = parsed(R"({"prompt": "x", "custom_id": )" + nlohmann::json(id).dump() + "}");
    EXPECT_FALSE(r.fault) << id;
    EXPECT_EQ(r.custom_id, id);
  }
  const std::string ascii = R"("\u043a\u043b\u044e\u0447")";
  EXPECT_EQ(parsed(R"({"prompt": "x", "custom_id": )" + ascii + "}").custom_id, "ключ");
  EXPECT_EQ(parsed(R"({"prompt": "x", "custom_id": ")" + std::string(300, 'i') + "\"}").custom_id, std::string(300, 'i'));
  EXPECT_EQ(parsed(R"({"prompt": "x", "id": 17})").custom_id, "17");  // documented: an integer stands for its digits
  EXPECT_EQ(parsed(R"({"custom_id":17,"method":"POST","url":"/v1/completions","body":{"prompt":"x"}})").custom_id, "17");
}

TEST(PromptReader, FaultyCustomIds) {
  const std::pair<std::string, std::string> cases[] = {
      {R"("")", R"(custom_id: "" is empty)"},
      {"1.5", "custom_id: 1.5 is not a string"},
      {"true", "custom_id: true is not a string"},
      {R"(["a"])", R"(custom_id: ["a"] is not a string)"},
      {R"("a\u0000b")", R"(custom_id: "a\u0000b" contains NUL)"},
      {concat("\"", std::string(4097, 'x'), "\""), "custom_id: \"" + std::string(56, 'x') + "... is longer than 4096 bytes"},
  };
  for (const auto& [id, message] : cases) {
    const PromptRecord r = parsed(R"({"prompt": "x", "custom_id": )" + id + "}");
    ASSERT_TRUE(r.fault) << id;
    EXPECT_EQ(r.fault->code + " " + r.fault->message, "invalid_custom_id " + message);
    EXPECT_EQ(r.custom_id, "line-7");
  }
  EXPECT_EQ(fault_of(R"({"method":"POST","url":"/v1/completions","body":{"prompt":"x"}})"),
            "invalid_custom_id custom_id is missing");
}

TEST(PromptReader, AFaultyLineKeepsItsId) {
  EXPECT_EQ(parsed(R"({"id":"q","method":"POST","url":"/v1/completions","body":{"prompt":"x"}})").custom_id,
            "line-7");  // a batch line has no `id`
  EXPECT_EQ(parsed(R"({"custom_id": "k", "prompt": 5})").custom_id, "k");
  EXPECT_EQ(parsed(R"({"custom_id": "k", "prompt": "x")").custom_id, "line-7");  // not JSON: nothing of it is believed
  EXPECT_EQ(parsed(R"({"custom_id": "k", "custom_id": "l", "prompt": "x"})").custom_id, "line-7");
}

TEST(PromptReader, LinesThatAreNoRequests) {
  const std::pair<std::string, std::string> cases[] = {
      {"[1, 2]", "invalid_request the line is [1, 2], expected an object"},
      {"\"x\"", "invalid_request the line is \"x\", expected an object"},
      {"null", "invalid_request the line is null, expected an object"},
      {"{}", "invalid_request neither prompt nor messages"},
      {R"({"prompt": null})", "invalid_request neither prompt nor messages"},
      {R"({"prompt": "x", "messages": [{"role": "user", "content": "x"}]})", "invalid_request both prompt and messages"},
      {R"({"promt": "x"})", "unknown_parameter unknown parameter 'promt', did you mean 'prompt'?"},
      {R"({"message": []})", "unknown_parameter unknown parameter 'message', did you mean 'messages'?"},
      {"{\"prompt\": \"x\xFF\"}", "invalid_json column 14: invalid UTF-8 (byte 0xFF)"},
      {R"({"prompt": "x", "temperature": NaN})", "invalid_json column 32: NaN is not JSON"},
  };
  for (const auto& [text, message] : cases) EXPECT_EQ(fault_of(text), message) << text;
}

TEST(PromptReader, BatchFaults) {
  const std::pair<std::string, std::string> cases[] = {
      {R"({"custom_id":"a","url":"/v1/completions","body":{"prompt":"x"}})", "invalid_request method is missing"},
      {R"({"custom_id":"a","method":"GET","url":"/v1/completions","body":{"prompt":"x"}})",
       R"(invalid_request method: "GET", expected "POST")"},
      {R"({"custom_id":"a","method":7,"url":"/v1/completions","body":{"prompt":"x"}})",
       R"(invalid_request method: 7, expected "POST")"},
      {R"({"custom_id":"a","method":"POST","body":{"prompt":"x"}})", "invalid_request url is missing"},
      {R"({"custom_id":"a","method":"POST","url":"/v1/completions"})", "invalid_request body is missing"},
      {R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":"x"})",
       R"(invalid_parameter body: "x" is a string, expected an object)"},
      {R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":{"prompt":"x"},"max_tokens":8})",
       R"(unknown_parameter unknown name "max_tokens" beside custom_id, method, url and body)"},
      {batch(R"({"input":"x"})", "/v1/embeddings"),
       R"(unsupported_url url: "/v1/embeddings", expected /v1/completions or /v1/chat/completions)"},
      {batch(R"({"prompt":"x"})", "/v1/chat/completions"),
       "invalid_request prompt belongs to /v1/completions, this is a request for /v1/chat/completions"},
      {batch(R"({"messages":[]})"),
       "invalid_request messages belongs to /v1/chat/completions, this is a request for /v1/completions"},
      {batch("{}"), "invalid_request prompt is missing"},
      {batch("{}", "/v1/chat/completions"), "invalid_request messages is missing"},
      {batch(R"({"prompt":"x","stream":true})"),
       "unsupported_parameter stream: true is not supported, the answer is one object"},
      {batch(R"({"prompt":"x","model":5})"), "invalid_parameter model: 5 is a number, expected a string"},
  };
  for (const auto& [text, message] : cases) EXPECT_EQ(fault_of(text), message) << text;
  EXPECT_EQ(fault_of(batch(R"({"prompt":"x","stream":false,"model":null})")), "");
}

TEST(PromptReader, PromptForms) {
  using Ids = std::vector<TokenId>;
  const auto prompts = [](const std::string& prompt) { return parsed(R"({"prompt": )" + prompt + "}"); };
  EXPECT_EQ(prompts("[1, 2.0, 2147483647]").prompts, std::vector<PromptText>{(Ids{1, 2, 2147483647})});
  EXPECT_FALSE(prompts("[1, 2]").prompt_is_list);
  EXPECT_EQ(prompts(R"(["a", "b"])").prompts, (std::vector<PromptText>{"a", "b"}));
  EXPECT_TRUE(prompts(R"(["a"])").prompt_is_list);
  EXPECT_EQ(prompts("[[1], [2, 3]]").prompts, (std::vector<PromptText>{Ids{1}, Ids{2, 3}}));
  EXPECT_EQ(prompts(R"("a\u0000b")").prompts, std::vector<PromptText>{std::string("a\0b", 3)});
  EXPECT_EQ(prompts("\" \"").prompts, std::vector<PromptText>{" "});

  const std::pair<std::string, std::string> faults[] = {
      {R"("")", R"(empty_prompt prompt: "" has no tokens)"},
      {"[]", "empty_prompt prompt: [] has no tokens"},
      {R"(["a", ""])", R"(empty_prompt prompt[1]: "" has no tokens)"},
      {"[[1], []]", "empty_prompt prompt[1]: [] has no tokens"},
      {"5", "invalid_parameter prompt: 5 is a number, expected a string, token ids, or a list of either"},
      {R"([1, "a"])", R"(invalid_parameter prompt[1]: "a" is a string, expected an integer)"},
      {R"(["a", 1])", "invalid_parameter prompt[1]: 1 is a number, expected a string or a list of token ids"},
      {"[1, -1]", "invalid_parameter prompt[1]: -1 is not in [0, 2147483647]"},
      {"[1, 2147483648]", "invalid_parameter prompt[1]: 2147483648 is not in [0, 2147483647]"},
      {"[1, 1.5]", "invalid_parameter prompt[1]: 1.5 is not an integer"},
      {"[[1, [2]]]", "invalid_parameter prompt[0][1]: [2] is an array, expected an integer"},
      {"[null]", "invalid_parameter prompt[0]: null, expected a string or a list of token ids"},
  };
  for (const auto& [prompt, message] : faults) EXPECT_EQ(fault_of(R"({"prompt": )" + prompt + "}"), message);
  std::string many = "[\"a\"";
  for (int i = 0; i < 16384; ++i) many += ",\"a\"";
  EXPECT_EQ(fault_of(R"({"prompt": )" + many + "]}"), "invalid_request prompt: more than 16384 in one line");
}

TEST(PromptReader, MessagesKeepTheirTextAndTextPartsAreJoined) {
  const auto messages = [](const std::string& text) { return parsed(R"({"messages": )" + text + "}"); };
  const std::string plain = R"([ {"role":"system","content":"é\u00e9"}, {"content":"", "role":"user", "name":"x"} ])";
  EXPECT_EQ(messages(plain).messages, plain);
  const std::string call =
      R"([{"role":"assistant","content":null,"tool_calls":[{"id":"1"}]},{"role":"tool","content":"4","tool_call_id":"1"}])";
  EXPECT_FALSE(messages(call).fault);
  EXPECT_EQ(messages(call).messages, call);
  EXPECT_EQ(
      messages(
          R"([{"role":"user","content":[{"type":"text","text":"a\n"},{"text":"\"ж","type":"text"}],"x":1},{"role":"user","content":[]}])")
          .messages,
      R"([{"role":"user","content":"a\n\"ж","x":1},{"role":"user","content":""}])");
}

TEST(PromptReader, MessageFaults) {
  const std::pair<std::string, std::string> faults[] = {
      {"[]", "empty_prompt messages: [] has no messages"},
      {"\"hi\"", "invalid_parameter messages: \"hi\" is a string, expected a list of objects"},
      {"[\"hi\"]", "invalid_parameter messages[0]: \"hi\" is a string, expected an object"},
      {R"([{"role":"user","content":"a"},{"content":"x"}])", "invalid_request messages[1].role is missing"},
      {R"([{"role":3,"content":"x"}])", "invalid_parameter messages[0].role: 3 is a number, expected a string"},
      {R"([{"role":"","content":"x"}])", "invalid_request messages[0].role is empty"},
      {R"([{"role":"user"}])", "invalid_request messages[0].content is missing"},
      {R"([{"role":"user","content":null,"tool_calls":[]}])", "invalid_request messages[0].content is missing"},
      {R"([{"role":"assistant","content":null}])", "invalid_request messages[0].content is missing"},
      {R"([{"role":"user","content":7}])",
       "invalid_parameter messages[0].content: 7 is a number, expected a string or a list of text parts"},
      {R"([{"role":"user","content":["x"]}])",
       "invalid_parameter messages[0].content[0]: \"x\" is a string, expected an object"},
      {R"([{"role":"user","content":[{"text":"x"}]}])", "invalid_request messages[0].content[0].type is missing"},
      {R"([{"role":"user","content":[{"type":"text"}]}])", "invalid_request messages[0].content[0].text is missing"},
      {R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"x"}}]}])",
       "unsupported_parameter messages[0].content[1].type: \"image_url\", only text parts are supported"},
  };
  for (const auto& [text, message] : faults) EXPECT_EQ(fault_of(R"({"messages": )" + text + "}"), message);
}

TEST(PromptReader, OutlineGivesTheSameIdAndACost) {
  JsonLine json;
  const std::string lines[] = {batch(R"({"prompt":"abc","max_tokens":10})"),
                               R"({"id": 4, "messages": [1], "max_completion_tokens": 5})",
                               R"({"prompt": "x", "max_tokens": "no"})",
                               R"({"prompt": "x", "max_tokens": 1000000000})",
                               "{broken",
                               "[]",
                               R"({"custom_id": ""})",
                               R"({"custom_id":"z","url":5,"body":[]})",
                               R"({"prompt": "eight more", "max_tokens": 2})",
                               R"({"prompt": [11, 222, 3333], "max_tokens": 2})",
                               R"({"prompt": [[1, 2], [3, 4, 5, 6]], "max_tokens": 2})"};
  const uint32_t costs[] = {2 + 10, 1 + 5, 1 + 16, 1 + (1 << 20), 0, 0, 16, 0, 3 + 2, 3 + 2, 6 + 2};
  for (size_t i = 0; i < std::size(lines); ++i) {
    const PromptOutline outline = outline_prompt(json, lines[i], 7);
    EXPECT_EQ(outline.custom_id, parsed(lines[i]).custom_id) << lines[i];
    EXPECT_EQ(outline.cost, costs[i]) << lines[i];
  }
}

TEST(PromptReader, OutlineCountsTheAnswersAndHowLongTheyMayGet) {
  JsonLine json;
  const auto answers = [&](const std::string& text) {
    const PromptOutline outline = outline_prompt(json, text, 1);
    return concat(outline.n_answers, " of ", outline.max_tokens);
  };
  EXPECT_EQ(answers(batch(R"({"prompt":"abc","max_tokens":10,"n":3})")), "3 of 10");
  EXPECT_EQ(answers(R"({"prompt": "x"})"), "1 of 16");
  EXPECT_EQ(answers(R"({"messages": [{"role": "user", "content": "x"}]})"), "1 of 1024");
  EXPECT_EQ(answers(R"({"messages": [{}, {}, {}], "max_completion_tokens": 7})"), "1 of 7");
  EXPECT_EQ(answers(R"({"prompt": [1, 2, 3], "max_tokens": 0, "echo": true})"), "1 of 0");
  EXPECT_EQ(answers(R"({"prompt": [[1, 2], [3]], "n": 2})"), "4 of 16");
  EXPECT_EQ(answers(R"({"prompt": ["a", "b", "c"], "n": null})"), "3 of 16");
  EXPECT_EQ(answers(R"({"prompt": "x", "max_tokens": 99999999999, "n": 99999999999})"), "128 of 1048576");
  EXPECT_EQ(answers(R"({"prompt": "x", "max_tokens": -3, "n": -3})"), "1 of 0");
  EXPECT_EQ(answers(R"({"prompt": [], "n": "no"})"), "0 of 16");
  std::string many = R"({"n": 128, "prompt": ["")";
  for (int i = 0; i < 20'000; ++i) many += R"(,"")";
  EXPECT_EQ(answers(many + "]}"), concat(16384 * 128, " of 16"));
  for (const char* text : {"{broken", "[]", "{}", R"({"method": "POST", "max_tokens": 5})"})
    EXPECT_EQ(answers(text).substr(0, 4), "0 of");
}

TEST(PromptReader, OutlineKnowsWhichPromptsBeginAlike) {
  JsonLine json;
  const auto beginnings = [&](const std::string& prompt) {
    return outline_prompt(json, R"({"prompt": ")" + prompt + R"("})", 1).beginnings;
  };
  const auto first = beginnings(std::string(5000, 'x') + "a"), other = beginnings(std::string(5000, 'x') + "b");
  EXPECT_EQ(first, other);
  const auto parted = beginnings(std::string(300, 'x') + "y" + std::string(5000, 'x'));
  EXPECT_EQ(parted[0], first[0]);
  EXPECT_EQ(parted[1], first[1]);
  EXPECT_NE(parted[2], first[2]);
  EXPECT_NE(parted[3], first[3]);
  EXPECT_NE(beginnings("short"), beginnings("shorter"));
  EXPECT_EQ(beginnings("short"), beginnings("short"));
}

}  // namespace
}  // namespace lockstep
