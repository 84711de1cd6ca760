// Tokenizer files: what is refused and by which name, damaged files, GGUF vocabularies by eye.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/error.h"
#include "text/tokenizer.h"
#include "text/tokenizer_golden.h"
#include "text/tokenizer_tiny.h"

namespace lockstep {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// 256 he, 257 ll, 258 hell, 259 hello, 260 " w"; then the added ones.
json hello() { return tiny_tokenizer({"h e", "l l", "he ll", "hell o", "_ w"}); }

std::string refusal(const json& file, std::string_view config = "") {
  try {
    make(file, config);
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ExitCode::unreadable) << error.what();
    return error.what();
  }
  return "accepted";
}

TEST(TokenizerFile, NamesWhatItDoesNotSupport) {
  const auto with = [](const char* pointer, const json& value) {
    json file = hello();
    file[json::json_pointer(pointer)] = value;
    return refusal(file);
  };
  EXPECT_THAT(with("/model/type", "Unigram"), HasSubstr("Unigram"));
  EXPECT_THAT(with("/model/dropout", 0.1), HasSubstr("dropout"));
  EXPECT_THAT(with("/model/end_of_word_suffix", "</w>"), HasSubstr("end_of_word_suffix"));
  EXPECT_THAT(with("/normalizer", {{"type", "Precompiled"}}), HasSubstr("Precompiled"));
  EXPECT_THAT(with("/pre_tokenizer", {{"type", "BertPreTokenizer"}}), HasSubstr("BertPreTokenizer"));
  EXPECT_THAT(with("/decoder", {{"type", "WordPiece"}}), HasSubstr("WordPiece"));
  EXPECT_THAT(with("/post_processor", {{"type", "Other"}}), HasSubstr("Other"));
  EXPECT_THAT(with("/pre_tokenizer", {{"type", "Split"}, {"pattern", {{"Regex", "(?<=a)b"}}}, {"behavior", "Isolated"}}),
              HasSubstr("(?<=a)b"));
  EXPECT_EQ(with("/normalizer", nullptr), "accepted");
}

TEST(TokenizerFile, RefusesWhatIsBroken) {
  const auto with = [](const char* pointer, const json& value) {
    json file = hello();
    file[json::json_pointer(pointer)] = value;
    return refusal(file);
  };
  EXPECT_THAT(with("/model/vocab/he", -1), HasSubstr("'he'"));
  EXPECT_THAT(with("/model/vocab/he", 1 << 30), HasSubstr("'he'"));
  EXPECT_THAT(with("/model/vocab/he", "1"), HasSubstr("'he'"));
  EXPECT_THAT(with("/model/vocab/he", 7), HasSubstr("one id, 7"));
  EXPECT_THAT(with("/model/merges/0", {"h", "nowhere"}), HasSubstr("nowhere"));
  EXPECT_THAT(with("/model/merges/0", "h"), HasSubstr("merge 0"));
  EXPECT_THAT(with("/model/merges/0", "h e l"), HasSubstr("merge 0"));
  EXPECT_THAT(with("/model/vocab", json::array()), HasSubstr("vocab"));
  EXPECT_THAT(with("/model", nullptr), HasSubstr("model"));
  EXPECT_THAT(with("/added_tokens", {{{"content", 5}}}), HasSubstr("type must be string"));
  EXPECT_THAT(with("/added_tokens", {{{"content", std::string(5000, 'x')}}}), HasSubstr("5000 bytes"));
  json deep = {{"type", "NFC"}};
  for (int i = 0; i < 100; ++i) deep = {{"type", "Sequence"}, {"normalizers", json::array({deep})}};
  EXPECT_THAT(with("/normalizer", deep), HasSubstr("nested"));
  EXPECT_THROW(Tokenizer::from_json("{", ""), Error);
  EXPECT_THROW(Tokenizer::from_json("", ""), Error);
  EXPECT_THROW(Tokenizer::from_json("[]", ""), Error);
  EXPECT_THROW(Tokenizer::from_json(std::string(100000, '['), ""), Error);
  EXPECT_THAT(refusal(hello(), "[1]"), HasSubstr("tokenizer_config.json"));
}

// Damaged files end in an Error or in a tokenizer that works; never in anything else.
TEST(TokenizerFile, DamagedFilesDoNoHarm) {
  json file = hello();
  add_token(file, "<s>");
  file["model"]["vocab"] = {{"a", 0}, {"b", 1}, {"ab", 2}, {"<0x41>", 3}};
  file["model"]["merges"] = json::array({{"a", "b"}});
  const std::string text = file.dump();
  std::mt19937 random(1);
  int n_accepted = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string damaged = text;
    for (unsigned n = random() % 2 + 1; n > 0; --n) {
      const size_t at = random() % damaged.size();
      switch (random() % 3) {
        case 0:
          damaged[at] = static_cast<char>("0-9\"[]{}, :xae"[random() % 14]);
          break;
        case 1:
          damaged.erase(at, random() % 8);
          break;
        default:
          damaged.insert(at, damaged.substr(random() % damaged.size(), random() % 8));
      }
    }
    try {
      const Tokenizer t = Tokenizer::from_json(damaged, "");
      t.decode(t.encode("ab <s>\u00E9", true), true);
      ++n_accepted;
    } catch (const Error& error) {
      EXPECT_EQ(error.code, ExitCode::unreadable) << error.what();
    }
  }
  EXPECT_GT(n_accepted, 50);
}

TEST(TokenizerGguf, NamesWhatItDoesNotSupport) {
  const auto refused = [](GgufVocab vocab) -> std::string {
    try {
      Tokenizer::from_gguf(vocab);
    } catch (const Error& error) {
      EXPECT_EQ(error.code, ExitCode::unreadable);
      return error.what();
    }
    return "accepted";
  };
  GgufVocab vocab = gguf_vocab_of(hello(), "smollm");
  EXPECT_EQ(refused(vocab), "accepted");
  vocab.bos_id = 300;
  EXPECT_THAT(refused(vocab), HasSubstr("bos token has id 300"));
  vocab.bos_id = -1;
  EXPECT_THAT(refused(vocab), HasSubstr("-1"));
  vocab = gguf_vocab_of(hello(), "new-model");
  EXPECT_THAT(refused(vocab), HasSubstr("'new-model'"));
  vocab.model = "t5";
  EXPECT_THAT(refused(vocab), HasSubstr("'t5'"));
  vocab = gguf_vocab_of(hello(), "smollm");
  vocab.merges.push_back("he nowhere");
  EXPECT_THAT(refused(vocab), HasSubstr("he nowhere"));
  vocab.merges.back() = "he";
  EXPECT_THAT(refused(vocab), HasSubstr("isn't a pair"));
  vocab = gguf_vocab_of(hello(), "smollm");
  vocab.token_types.pop_back();
  EXPECT_THAT(refused(vocab), HasSubstr("token types"));
  vocab = GgufVocab{};
  vocab.model = "llama";
  EXPECT_THAT(refused(vocab), HasSubstr("0 tokens"));
  vocab.tokens = {"a"};
  EXPECT_THAT(refused(vocab), HasSubstr("0 scores"));
  vocab.scores = {std::nanf("")};
  EXPECT_THAT(refused(vocab), HasSubstr("not a number"));
}

TEST(TokenizerGguf, SentencePieceMergesByScore) {
  GgufVocab vocab;
  vocab.model = "llama";
  vocab.tokens = {"<unk>", "<s>", "</s>", "\u2581", "a", "b", "c", "bc", "ab", "\u2581ab"};
  vocab.scores = {0, 0, 0, -10, -10, -10, -10, -1, -2, -3};
  vocab.token_types = {2, 3, 3, 1, 1, 1, 1, 1, 1, 1};
  const Tokenizer t = Tokenizer::from_gguf(vocab);
  EXPECT_EQ(t.encode("abc", true), Ids({1, 3, 4, 7}));  // "bc" scores more than "ab"
  EXPECT_EQ(t.encode("ab</s>ab", false), Ids({9, 2, 9}));
  EXPECT_EQ(t.decode(Ids{9, 2, 9}, true), "ab ab");
  EXPECT_EQ(t.bos(), 1);
  vocab.add_bos = false;
  vocab.add_space_prefix = false;
  EXPECT_EQ(Tokenizer::from_gguf(vocab).encode("ab", true), Ids({8}));
}

TEST(TokenizerGguf, FillersAreNoTokens) {
  GgufVocab vocab = gguf_vocab_of(hello(), "smollm");
  vocab.tokens.push_back("[PAD261]");
  vocab.token_types.push_back(4);
  const Tokenizer t = Tokenizer::from_gguf(vocab);
  EXPECT_EQ(t.n_tokens(), 261);
  EXPECT_EQ(t.decode(Ids{261}, false), "");
  EXPECT_EQ(t.encode("[PAD261]", false).size(), 8u);
}

}  // namespace
}  // namespace lockstep
