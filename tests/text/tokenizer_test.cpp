// Tokenizer by eye: merges, special tokens, what is trusted, BOS, decode.
#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <thread>

#include "text/tokenizer_tiny.h"

namespace lockstep {
namespace {

using nlohmann::json;

// 256 he, 257 ll, 258 hell, 259 hello, 260 " w"; then the added ones.
json hello() { return tiny_tokenizer({"h e", "l l", "he ll", "hell o", "_ w"}); }

TEST(Tokenizer, MergesByRankThenFromTheLeft) {
  const Tokenizer t = make(hello());
  EXPECT_EQ(t.encode("hello", false), Ids({259}));
  EXPECT_EQ(t.encode("helllo", false), Ids({258, 'l', 'o'}));  // "ll" is taken at the left of "lll"
  EXPECT_EQ(t.encode("hello we", false), Ids({259, 260, 'e'}));
  EXPECT_EQ(t.encode("", false), Ids());
  EXPECT_EQ(t.encode("\u00E9", false), Ids({0xC3, 0xA9}));
  EXPECT_EQ(t.decode(Ids{259, 260, 'e'}, false), "hello we");
  EXPECT_EQ(t.n_tokens(), 261);
  EXPECT_EQ(t.find("hello"), 259);
  EXPECT_EQ(t.find("\u0120w"), 260);  // as the file writes it
  EXPECT_EQ(t.find("hullo"), std::nullopt);
}

TEST(Tokenizer, LongWordsMergeInTheSameOrder) {
  const Tokenizer t = make(hello());
  Ids pairs(50, 257);
  pairs.push_back('l');  // the odd one is the last
  EXPECT_EQ(t.encode(std::string(101, 'l'), false), pairs);
  std::string text;
  Ids ids;
  for (int i = 0; i < 100; ++i) {
    text += "hellohelll";
    ids.insert(ids.end(), {259, 258, 'l'});
  }
  EXPECT_EQ(t.encode(text, false), ids);
}

TEST(Tokenizer, NoMergeCrossesAWord) {
  const Tokenizer t = make(tiny_tokenizer({"o w", "o _"}));
  EXPECT_EQ(t.encode("o w", false), Ids({'o', ' ', 'w'}));
  EXPECT_EQ(t.encode("ow", false), Ids({256}));
}

TEST(Tokenizer, InvalidBytesCountAsReplacement) {
  const Tokenizer t = make(hello());
  EXPECT_EQ(t.encode("h\xFF", false), Ids({'h', 0xEF, 0xBF, 0xBD}));
}

TEST(Tokenizer, SpecialTokensInTheText) {
  json file = hello();
  add_token(file, "<s>");                      // 261
  add_token(file, "<sep>");                    // 262
  add_token(file, "<b>", {.special = false});  // 263
  const Tokenizer t = make(file);
  EXPECT_EQ(t.encode("<s>hello<sep><b>", false), Ids({261, 259, 262, 263}));
  EXPECT_EQ(t.decode(Ids{261, 259, 262, 263}, false), "<s>hello<sep><b>");
  EXPECT_EQ(t.decode(Ids{261, 259, 262, 263}, true), "hello<b>");
  EXPECT_TRUE(t.is_special(261));
  EXPECT_FALSE(t.is_special(263));
  EXPECT_FALSE(t.is_special(-1));
  EXPECT_FALSE(t.is_special(1 << 30));
}

TEST(Tokenizer, TheLongestAddedTokenWins) {
  json file = hello();
  add_token(file, "<a");   // 261
  add_token(file, "<a>");  // 262
  const Tokenizer t = make(file);
  EXPECT_EQ(t.encode("<a>", false), Ids({262}));
  EXPECT_EQ(t.encode("<a<a>", false), Ids({261, 262}));
}

TEST(Tokenizer, UntrustedTextMakesNoSpecialToken) {
  json file = hello();
  add_token(file, "<s>");                      // 261
  add_token(file, "<b>", {.special = false});  // 262
  const Tokenizer t = make(file);
  const std::vector<TextPiece> pieces = {{"<s>", true}, {"<s><b>", false}, {"<s>", true}};
  EXPECT_EQ(t.encode(pieces, false, false), Ids({261, '<', 's', '>', 262, 261}));
  EXPECT_EQ(t.encode(pieces, false, true), Ids({261, 261, 262, 261}));
  // Half of it trusted is not trusted, from either side; and content cannot hide the template's token.
  EXPECT_EQ(t.encode(std::vector<TextPiece>{{"<s", false}, {">", true}}, false, false), Ids({'<', 's', '>'}));
  EXPECT_EQ(t.encode(std::vector<TextPiece>{{"<", true}, {"s>", false}}, false, false), Ids({'<', 's', '>'}));
  EXPECT_EQ(t.encode(std::vector<TextPiece>{{"<s", false}, {"<s>", true}}, false, false), Ids({'<', 's', 261}));
}

TEST(Tokenizer, PiecesAreOneText) {
  const Tokenizer t = make(hello());
  EXPECT_EQ(t.encode(std::vector<TextPiece>{{"he", true}, {"llo", false}, {" w", true}}, false, false), Ids({259, 260}));
  EXPECT_EQ(t.encode(std::vector<TextPiece>{}, false, false), Ids());
}

TEST(Tokenizer, AContentThatIsASpecialTokenOfTheVocabularyStaysText) {
  json file = tiny_tokenizer({"x y", "xy z"});  // 256 xy, 257 xyz
  file["added_tokens"].push_back({{"id", 257}, {"content", "xyz"}, {"special", true}});
  const std::vector<TextPiece> content = {{"xyz", false}};
  EXPECT_EQ(make(file).encode(content, false, false), Ids({256, 'z'}));
  file["model"]["ignore_merges"] = true;
  EXPECT_EQ(make(file).encode(content, false, false), Ids({256, 'z'}));
  EXPECT_EQ(make(file).encode("xyz", false), Ids({257}));
}

TEST(Tokenizer, TrustSurvivesNormalization) {
  json file = hello();
  file["normalizer"] = {
      {"type", "Sequence"},
      {"normalizers", {{{"type", "NFC"}}, {{"type", "Replace"}, {"pattern", {{"String", "#"}}}, {"content", "<s"}}}}};
  add_token(file, "<s>", {.normalized = true});  // 261
  const Tokenizer t = make(file);
  EXPECT_EQ(t.encode("#>", false), Ids({261}));
  EXPECT_EQ(t.encode(std::vector<TextPiece>{{"#", false}, {">#>", true}}, false, false), Ids({'<', 's', '>', 261}));
  EXPECT_EQ(t.encode(std::vector<TextPiece>{{"<s>", true}, {"e\u0301<s>", false}, {"<s>", true}}, false, false),
            Ids({261, 0xC3, 0xA9, '<', 's', '>', 261}));
}

TEST(Tokenizer, IgnoreMergesTakesAWholeWordFirst) {
  json file = hello();
  file["model"]["vocab"]["hel"] = 261;  // no merge makes it
  EXPECT_EQ(make(file).encode("hel hell", false), Ids({256, 'l', ' ', 258}));
  file["model"]["ignore_merges"] = true;
  EXPECT_EQ(make(file).encode("hel hell", false), Ids({261, ' ', 258}));
}

json with_bos(const char* bos) {
  json file = hello();
  add_token(file, "<s>");   // 261
  add_token(file, "</s>");  // 262
  if (bos != nullptr)
    file["post_processor"] = {
        {"type", "TemplateProcessing"},
        {"single", {{{"SpecialToken", {{"id", bos}, {"type_id", 0}}}}, {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
        {"special_tokens", {{bos, {{"id", bos}, {"ids", {261}}, {"tokens", {bos}}}}}}};
  return file;
}

TEST(Tokenizer, OneBosNotTwo) {
  const Tokenizer t = make(with_bos("<s>"));
  EXPECT_EQ(t.encode("hello", true), Ids({261, 259}));
  EXPECT_EQ(t.encode("hello", false), Ids({259}));
  EXPECT_EQ(t.encode("", true), Ids({261}));
  EXPECT_EQ(t.encode("<s>hello", true), Ids({261, 259}));
  EXPECT_EQ(t.encode(std::vector<TextPiece>{{"<s>", false}}, true, false), Ids({261, '<', 's', '>'}));
}

TEST(Tokenizer, ConfigNamesBosAndEos) {
  const char* both = R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "add_bos_token": true, "add_eos_token": true})";
  const Tokenizer t = make(with_bos(nullptr), both);
  EXPECT_EQ(t.encode("hello", true), Ids({261, 259, 262}));
  EXPECT_EQ(t.bos(), 261);
  EXPECT_EQ(t.eos_text(), "</s>");
  EXPECT_EQ(make(with_bos("<s>"), both).encode("hello", true), Ids({261, 259, 262}));  // the template has it already
  EXPECT_EQ(make(with_bos("<s>"), R"({"bos_token": "<s>", "add_bos_token": false})").encode("hello", true), Ids({259}));
  EXPECT_EQ(make(with_bos("<s>"), R"({"bos_token": "<s>"})").encode("hello", true), Ids({261, 259}));
  EXPECT_EQ(make(with_bos("<s>"), R"({"bos_token": null, "eos_token": "<none>"})").eos(), std::nullopt);
  EXPECT_EQ(make(with_bos(nullptr)).bos_text(), "");
}

TEST(Tokenizer, DecodeIsExactAboutSpacesAndBytes) {
  const Tokenizer t = make(hello(), R"({"clean_up_tokenization_spaces": true})");
  for (const std::string text : {"a , b . c ?", "x != y", "it 's", " \n\t ", "na\u00EFve \U0001F600"})
    EXPECT_EQ(t.decode(t.encode(text, false), true), text);
  EXPECT_EQ(t.decode(Ids{0xF0, 0x9F}, false), "\uFFFD");
  EXPECT_EQ(t.decode(Ids{'a', -5, 100000, 'b'}, false), "ab");
  EXPECT_EQ(t.token_bytes(0xF0), "\xF0");
  EXPECT_EQ(t.token_bytes(260), " w");
  EXPECT_EQ(t.token_bytes(100000), "");
}

TEST(Tokenizer, SentencePieceStyle) {
  json file = tiny_tokenizer({});
  const json vocab = {{"<unk>", 0}, {"<0xC3>", 1}, {"<0xA9>", 2}, {"\u2581", 3},
                      {"a", 4},     {"b", 5},      {"ab", 6},     {"\u2581ab", 7}};
  file["model"] = {{"type", "BPE"},         {"vocab", vocab},   {"merges", json::array({{"a", "b"}, {"\u2581", "ab"}})},
                   {"byte_fallback", true}, {"fuse_unk", true}, {"unk_token", "<unk>"}};
  file["pre_tokenizer"] = nullptr;
  file["normalizer"] = json::parse(R"({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]})");
  file["decoder"] =
      json::parse(R"({"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
      {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})");
  const Tokenizer t = make(file);
  EXPECT_EQ(t.encode("ab ab", false), Ids({7, 7}));
  EXPECT_EQ(t.encode("ab\u00E9xyb", false), Ids({7, 1, 2, 0, 5}));  // bytes by name; x and y fuse to one unknown
  EXPECT_EQ(t.decode(Ids{7, 7, 1, 2}, false), "ab ab\u00E9");
  EXPECT_EQ(t.decode(Ids{7, 1, 4}, false),
            "ab\uFFFD"
            "a");
  EXPECT_EQ(t.token_bytes(1), "\xC3");
  EXPECT_EQ(t.token_bytes(7), " ab");
}

TEST(Tokenizer, OneTokenizerServesSeveralThreads) {
  const Tokenizer t = make(hello());
  std::vector<std::thread> threads;
  std::array<Ids, 4> results;
  for (Ids& result : results)
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) result = t.encode("hello hello we hell", false);
    });
  for (std::thread& thread : threads) thread.join();
  for (const Ids& result : results) EXPECT_EQ(result, Ids({259, ' ', 259, 260, 'e', ' ', 258}));
}

}  // namespace
}  // namespace lockstep
