// Streaming: what comes out when, and that it adds up to decode().
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "text/detokenizer.h"
#include "text/tokenizer_golden.h"
#include "text/tokenizer_tiny.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> chunks(const Tokenizer& tokenizer, const Ids& ids, bool skip_special_tokens = false) {
  Detokenizer detokenizer(tokenizer, skip_special_tokens);
  std::vector<std::string> out;
  for (const TokenId id : ids) out.push_back(detokenizer.push(id));
  out.push_back(detokenizer.finish());
  return out;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += part;
  return text;
}

TEST(TokenizerDetokenizer, HoldsBackAnUnfinishedCharacter) {
  nlohmann::json file = tiny_tokenizer({"h e"});
  add_token(file, "<s>");  // 257
  const Tokenizer t = make(file);
  EXPECT_THAT(chunks(t, {256, 0xC3, 0xA9, 'x'}), ElementsAre("he", "", "\u00E9", "x", ""));
  EXPECT_THAT(chunks(t, {0xF0, 0x9F, 0x98, 0x80}), ElementsAre("", "", "", "\U0001F600", ""));
  EXPECT_THAT(chunks(t, {0xF0, 0x9F, 'x'}), ElementsAre("", "", "\uFFFDx", ""));
  EXPECT_THAT(chunks(t, {'x', 0xF0}), ElementsAre("x", "", "\uFFFD"));
  EXPECT_THAT(chunks(t, {0xEF, 0xBF, 0xBD, 'x'}), ElementsAre("", "", "", "\uFFFDx", ""));  // a U+FFFD that was meant
  EXPECT_THAT(chunks(t, {0x80, 0x80}), ElementsAre("", "", "\uFFFD\uFFFD"));
  EXPECT_THAT(chunks(t, {257, 'x', 257, 99999, -1}), ElementsAre("<s>", "x", "<s>", "", "", ""));
  EXPECT_THAT(chunks(t, {257, 0xC3, 257, 0xA9}, true), ElementsAre("", "", "", "\u00E9", ""));
}

TEST(TokenizerDetokenizer, BeginsAnewAfterFinish) {
  const Tokenizer t = make(tiny_tokenizer({}));
  Detokenizer d(t, false);
  EXPECT_EQ(d.push(0xC3), "");
  EXPECT_EQ(d.finish(), "\uFFFD");
  EXPECT_EQ(d.push('x'), "x");
  EXPECT_EQ(d.finish(), "");
}

TEST(TokenizerDetokenizer, OutlivesTheTokenizerItCameFrom) {
  auto t = std::make_unique<Tokenizer>(make(tiny_tokenizer({})));
  Detokenizer d(*t, false);
  t.reset();
  EXPECT_EQ(d.push('x'), "x");
}

TEST(TokenizerDetokenizer, RandomBytesAddUpToDecode) {
  const Tokenizer t = make(tiny_tokenizer({"h e"}));
  std::mt19937 random(3);
  const std::string likely = "a\xC3\xA9\xF0\x9F\x98\x80\xE2\x82\xEF\xBF\xBD\xFF";
  for (int i = 0; i < 3000; ++i) {
    Ids ids;
    for (unsigned n = random() % 20; n > 0; --n) ids.push_back(static_cast<unsigned char>(likely[random() % likely.size()]));
    ASSERT_EQ(joined(chunks(t, ids)), t.decode(ids, false)) << ::testing::PrintToString(ids);
  }
}

TEST(TokenizerDetokenizer, RandomTokensOfRealVocabulariesAddUpToDecode) {
  for (const char* name : {"smollm2", "phi3"}) {
    const auto file = golden_tokenizer(name);
    if (!file) GTEST_SKIP() << "no golden tokenizer " << name;
    const Tokenizer t = Tokenizer::from_json(*file, "");
    std::mt19937 random(5);
    for (int i = 0; i < 300; ++i) {
      Ids ids;
      // Byte tokens of a SentencePiece vocabulary stand at 3..258: without them each text is certain.
      for (unsigned n = random() % 40; n > 0; --n) ids.push_back(static_cast<TokenId>(random() % (t.n_tokens() - 259)) + 259);
      for (const bool skip : {false, true}) ASSERT_EQ(joined(chunks(t, ids, skip)), t.decode(ids, skip));
    }
  }
}

TEST(TokenizerDetokenizer, BytesOfASentencePieceVocabulary) {
  const auto file = golden_tokenizer("phi3");
  if (!file) GTEST_SKIP() << "no golden tokenizer phi3";
  const Tokenizer t = Tokenizer::from_json(*file, "");
  const auto byte = [](int value) { return 3 + value; };
  const TokenId word = *t.find("\u2581a");
  EXPECT_THAT(chunks(t, {word, byte(0xC3), byte(0xA9), word}), ElementsAre("a", "", "\u00E9", " a", ""));
  EXPECT_THAT(chunks(t, {word, byte(0xC3), word}), ElementsAre("a", "", "\uFFFD a", ""));
  EXPECT_THAT(chunks(t, {byte(0xE2), byte(0x82)}), ElementsAre("", "", "\uFFFD\uFFFD"));
}

// A million invalid bytes: a cost that grew with what is held back would not end.
TEST(TokenizerDetokenizer, HostileStreamsAreLinear) {
  const Tokenizer t = make(tiny_tokenizer({}));
  Detokenizer d(t, false);
  size_t n_bytes = 0;
  for (int i = 0; i < 1'000'000; ++i) n_bytes += d.push(0x80).size();
  EXPECT_EQ(n_bytes, 0u);
  EXPECT_EQ(d.finish().size(), 3'000'000u);
}

}  // namespace
}  // namespace lockstep
