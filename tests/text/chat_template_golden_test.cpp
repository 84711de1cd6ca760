// 74 templates of real models, 13 conversations, with and without a generation prompt, against Transformers' renderings.
#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string joined(const std::vector<TextPiece>& pieces) {
  std::string text;
  for (const TextPiece& piece : pieces) text += piece.text;
  return text;
}

std::filesystem::path goldens() { return std::filesystem::path(LOCKSTEP_SHARED) / "goldens"; }

ChatInput input_of(const Json& conversation, const Json& result, bool add_generation_prompt) {
  ChatInput input;
  input.messages = conversation["messages"].dump();
  if (conversation.contains("tools")) input.tools = conversation["tools"].dump();
  if (conversation.contains("kwargs")) input.kwargs = conversation["kwargs"].dump();
  input.add_generation_prompt = add_generation_prompt;
  input.bos_text = result["bos"];
  input.eos_text = result["eos"];
  input.now = "2025-01-02 03:04:05";
  return input;
}

TEST(ChatTemplateGolden, EveryTemplateAndConversation) {
  if (!std::filesystem::exists(goldens() / "templates.json")) GTEST_SKIP() << "no golden data at " << goldens();
  const Json data = Json::parse(read_file(goldens() / "templates.json"));
  size_t n_texts = 0, n_errors = 0;
  for (const Json& result : data["results"]) {
    const std::string name = result["t"];
    const auto chat_template = ChatTemplate::parse(read_file(goldens() / "templates" / (name + ".jinja")));
    for (size_t i = 0; i < result["out"].size(); ++i) {
      const Json& conversation = data["conversations"][i / 2];
      SCOPED_TRACE(name + ", conversation " + conversation["name"].get<std::string>() + (i % 2 == 0 ? ", prompt" : ""));
      const auto rendered = chat_template.render(input_of(conversation, result, i % 2 == 0));
      const Json& expected = result["out"][i];
      if (expected.is_string()) {
        ++n_texts;
        ASSERT_TRUE(rendered.ok()) << rendered.fault().message;
        EXPECT_EQ(joined(rendered.value()), expected.get<std::string>());
      } else {
        ++n_errors;
        ASSERT_FALSE(rendered.ok()) << joined(rendered.value());
        EXPECT_EQ(rendered.fault().code, "template_error");
        EXPECT_TRUE(rendered.fault().message.starts_with(expected["msg"].get<std::string>()))
            << rendered.fault().message << "\nexpected " << expected["msg"];
      }
    }
  }
  EXPECT_EQ(n_texts + n_errors, 74u * 26u);
  EXPECT_GT(n_errors, 300u);
}

}  // namespace
}  // namespace lockstep
