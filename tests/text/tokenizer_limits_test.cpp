// Tokenizer files that ask for absurd work or memory, or for a search inside characters: refused, or an Error at the text. A
// case that isn't limited runs into the test's timeout or takes all memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "text/tokenizer.h"
#include "text/tokenizer_tiny.h"

namespace lockstep {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json with(const char* pointer, const json& value) {
  json file = tiny_tokenizer({"h e", "l l"});
  file[json::json_pointer(pointer)] = value;
  return file;
}

template <class Function>
std::string refusal(const Function& function) {
  try {
    function();
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ExitCode::unreadable) << error.what();
    EXPECT_LT(std::string_view(error.what()).size(), 1000u);
    return error.what();
  }
  return "accepted";
}
std::string refusal(const json& file) {
  return refusal([&] { make(file); });
}

json replace_step(const std::string& what, const std::string& with_text) {
  return {{"type", "Replace"}, {"pattern", {{"String", what}}}, {"content", with_text}};
}

TEST(TokenizerLimits, MetaspaceIsOneCharacter) {
  for (const char* part : {"/pre_tokenizer", "/decoder"}) {
    for (const char* replacement : {"", "ab"}) {
      const json step = {{"type", "Metaspace"}, {"replacement", replacement}, {"prepend_scheme", "always"}, {"split", true}};
      EXPECT_THAT(refusal(with(part, step)), HasSubstr("Metaspace")) << part << " '" << replacement << "'";
    }
    EXPECT_EQ(refusal(with(part, {{"type", "Metaspace"}, {"replacement", "\u2581"}})), "accepted");
  }
}

TEST(TokenizerLimits, NormalizersThatDouble) {
  const json doubling = {{"type", "Sequence"}, {"normalizers", std::vector<json>(40, replace_step("a", "aa"))}};
  const Tokenizer tokenizer = make(with("/normalizer", doubling));
  EXPECT_EQ(tokenizer.encode("hello", false), make(tiny_tokenizer({"h e", "l l"})).encode("hello", false));
  EXPECT_THAT(refusal([&] { tokenizer.encode("a", false); }), HasSubstr("normalizer"));
  EXPECT_THAT(refusal(with("/normalizer", {{"type", "Prepend"}, {"prepend", std::string(257, 'a')}})), HasSubstr("257 bytes"));
  EXPECT_THAT(refusal(with("/normalizer", replace_step("a", std::string(257, 'a')))), HasSubstr("257 bytes"));
  EXPECT_EQ(refusal(with("/normalizer", replace_step("a", std::string(256, 'a')))), "accepted");
}

TEST(TokenizerLimits, DecodersThatDouble) {
  const json doubling = {{"type", "Sequence"}, {"decoders", std::vector<json>(40, replace_step("a", "aa"))}};
  EXPECT_THAT(refusal(with("/decoder", doubling)), HasSubstr("decoder"));
}

TEST(TokenizerLimits, ChainsOfManySteps) {
  const json digits = {{"type", "Digits"}, {"individual_digits", true}};
  const auto chain = [&](size_t n) { return json{{"type", "Sequence"}, {"pretokenizers", std::vector<json>(n, digits)}}; };
  EXPECT_EQ(refusal(with("/pre_tokenizer", chain(64))), "accepted");
  EXPECT_THAT(refusal(with("/pre_tokenizer", chain(65))), HasSubstr("so many steps"));
}

TEST(TokenizerLimits, TokensAroundATextAreFew) {
  const auto around = [](size_t n, size_t times) {
    json single = std::vector<json>(times, {{"SpecialToken", {{"id", "he"}}}});
    single.push_back({{"Sequence", {{"id", "A"}}}});
    const json ids = std::vector<int>(n, 256);
    return json{{"type", "TemplateProcessing"}, {"single", single}, {"special_tokens", {{"he", {{"ids", ids}}}}}};
  };
  EXPECT_EQ(make(with("/post_processor", around(16, 16))).encode("", true).size(), 256u);
  EXPECT_THAT(refusal(with("/post_processor", around(16, 17))), HasSubstr("more than 256"));
  EXPECT_THAT(refusal(with("/post_processor", around(1000000, 1000))), HasSubstr("more than 256"));
}

TEST(TokenizerLimits, IdsGoWithTheVocabulary) {
  EXPECT_EQ(refusal(with("/model/vocab/x1", 5000)), "accepted");
  EXPECT_THAT(refusal(with("/model/vocab/x1", 4000000)), HasSubstr("4000000"));
}

TEST(TokenizerLimits, DeepFilesAreRefusedBeforeTheyAreCopied) {
  const std::string deep = std::string(300000, '[') + std::string(300000, ']');
  const auto refused = [](const std::string& file, const std::string& config = "") {
    return refusal([&] { Tokenizer::from_json(file, config); });
  };
  EXPECT_THAT(refused(R"({"model": {"type": )" + deep + R"(, "vocab": {}, "merges": []}})"), HasSubstr("nested deeper"));
  EXPECT_THAT(refused(R"({"normalizer": )" + deep + R"(, "model": {"vocab": {}, "merges": []}})"), HasSubstr("nested deeper"));
  EXPECT_THAT(refused(tiny_tokenizer({}).dump(), R"({"x": )" + deep + "}"), HasSubstr("nested deeper"));
  EXPECT_EQ(refused(R"({"model": {"vocab": {"[[\"[[\\": 0}, "merges": []}})"), "accepted");
  const std::string brackets(200, '[');
  EXPECT_EQ(refused(R"({"model": {"vocab": {")" + brackets + R"(": 0}, "merges": []}})"), "accepted");
}

TEST(TokenizerLimits, MessagesShowTheBeginningOfAValue) {
  EXPECT_THAT(refusal(with("/model/type", std::string(100000, 'x'))), HasSubstr("xxx ..."));
  EXPECT_THAT(refusal(with("/model/merges/0", std::vector<int>(100000, 1))), HasSubstr("1,1 ..."));
}

TEST(TokenizerLimits, OnePatternBudgetForAllStretchesOfAText) {
  // Between added tokens the pattern takes a million steps each time.
  json file = with("/pre_tokenizer", {{"type", "Split"}, {"pattern", {{"Regex", "(?:a|a)*b"}}}, {"behavior", "Isolated"}});
  add_token(file, "<x>", {.special = false});
  const Tokenizer tokenizer = make(file);
  std::string text;
  for (int i = 0; i < 20000; ++i) text += "aaaaaaaaaaaaaa<x>";
  EXPECT_EQ(tokenizer.encode("aaaaaaaaaaaaaa<x>", false).size(), 15u);
  EXPECT_THAT(refusal([&] { tokenizer.encode(text, false); }), HasSubstr("too many steps"));
}

TEST(TokenizerLimits, GgufTokensThatAreFoundInTextsAreUtf8) {
  GgufVocab vocab{.model = "gpt2", .pre = "gpt-2", .tokens = {"a", "\xBD\xA0"}, .token_types = {1, 1}};
  EXPECT_EQ(refusal([&] { Tokenizer::from_gguf(vocab); }), "accepted");
  for (const int32_t type : {3, 4}) {
    vocab.token_types[1] = type;
    EXPECT_THAT(refusal([&] { Tokenizer::from_gguf(vocab); }), HasSubstr("no UTF-8")) << type;
  }
}

}  // namespace
}  // namespace lockstep
