// Patterns: the engine by eye, the straight code against the engine, the classes against the probed ones, hostile ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "base/utf8.h"
#include "text/known_patterns.h"
#include "text/pattern.h"
#include "text/tokenizer_golden.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Strings = std::vector<std::string>;

Strings matches(const Pattern& pattern, std::string_view text) {
  Strings found;
  PatternBudget budget(text.size());
  pattern.for_each_match(text, budget, [&](size_t begin, size_t end) { found.emplace_back(text.substr(begin, end - begin)); });
  return found;
}
Strings matches(const char* pattern, std::string_view text) { return matches(Pattern(pattern), text); }

TEST(TokenizerPattern, ByEye) {
  EXPECT_THAT(matches("a+", "baaca"), ElementsAre("aa", "a"));
  EXPECT_THAT(matches("a|ab", "ab"), ElementsAre("a"));  // the first alternative, not the longest
  EXPECT_THAT(matches("a{2}|a", "aaaaa"), ElementsAre("aa", "aa", "a"));
  EXPECT_THAT(matches("a{1,3}?b|a", "aaab"), ElementsAre("aaab"));
  EXPECT_THAT(matches("\"[^\"]*?\"", "\"x\" \"y\""), ElementsAre("\"x\"", "\"y\""));
  EXPECT_THAT(matches("a++a", "aaa"), ElementsAre());
  EXPECT_THAT(matches("(?>a*)b|a", "aac"), ElementsAre("a", "a"));
  EXPECT_THAT(matches(R"(\s+(?!\S)|\s+)", "a   b  "), ElementsAre("  ", " ", "  "));
  EXPECT_THAT(matches(R"(\d{1,3}(?=(?:\d{3})*\b))", "1234567"), ElementsAre("1", "234", "567"));
  EXPECT_THAT(matches("(?i:'s|'ll)", "'S 'lL 's '\u017F"), ElementsAre("'S", "'lL", "'s", "'\u017F"));
  EXPECT_THAT(matches("a(?i)b|c", "aB C ac aC"), ElementsAre("aB", "ac", "aC"));
  EXPECT_THAT(matches(R"([a-f&&[^b-d]]+)", "abcdef"), ElementsAre("a", "ef"));
  EXPECT_THAT(matches(R"([\p{Lu}\p{Nd}]+|\P{L})", "aB1\u0661-c"), ElementsAre("B1\u0661", "-"));
  EXPECT_THAT(matches(R"([\]\-^x{]+)", "a]-^x{b"), ElementsAre("]-^x{"));
  EXPECT_THAT(matches("^a|b$", "a\na b\nab"), ElementsAre("a", "a", "b", "a", "b"));
  EXPECT_THAT(matches(R"(\u0041\x42\x{43})", "ABC"), ElementsAre("ABC"));
  EXPECT_THAT(matches("(a|b)*c", "ababc"), ElementsAre("ababc"));
  EXPECT_THAT(matches("(?:a*)*b|.", "aac"), ElementsAre("a", "a", "c"));  // an empty round ends the loop
}

TEST(TokenizerPattern, EmptyMatchesSeparate) {
  EXPECT_THAT(matches("x*", "axxb"), ElementsAre("", "xx", ""));
  EXPECT_THAT(matches("(?=b)", "abab"), ElementsAre("", ""));
  EXPECT_THAT(matches("x*", ""), ElementsAre(""));
}

TEST(TokenizerPattern, RefusesByName) {
  const auto refusal = [](const std::string& pattern) -> std::string {
    try {
      const Pattern built(pattern);
    } catch (const Error& error) {
      EXPECT_EQ(error.code, ExitCode::unreadable);
      return error.what();
    }
    return "accepted";
  };
  for (const char* pattern :
       {"(?<=a)b", "(?<!a)b",     "(a)\\1",  "\\p{Greek}", "[[:alpha:]]", "(?<n>a)",     "\\h",     "\\G",   "(?m)a",
        "\\xFF",   "a{3}+",       "a**",     "(a",         "a)",          "[a",          "[]",      "[b-a]", "\\",
        "*a",      "(?i:\u00E9)", "(?i:ss)", "a{2,1}",     "\\p{L",       "\\x{110000}", "a{5000}", "\xFF"})
    EXPECT_THAT(refusal(pattern), HasSubstr("supported")) << pattern;
  EXPECT_THAT(refusal("((a{100}){100}){100}"), HasSubstr("too many"));
  EXPECT_THAT(refusal("(^{0,1000}){0,1000}"), HasSubstr("too many"));
  EXPECT_THAT(refusal(std::string(5000, '(')), HasSubstr("too deeply"));
  EXPECT_THAT(refusal(std::string(5000, '[')), HasSubstr("too deeply"));
  EXPECT_THAT(refusal(std::string(1 << 20, 'a')), HasSubstr("bytes"));
  EXPECT_EQ(refusal("a{,2}|{x}|a{b"), "accepted");  // braces that count nothing are characters
}

TEST(TokenizerPattern, HostilePatternsEndInAnError) {
  const std::string text(3000, 'a');
  for (const char* pattern : {"(a+)+b", "(a|a)*b", "(a*)*b", "(?:a|ab|aa)*c", "a*a*a*a*b", "((?=(a+)+b)a)*"}) {
    const Pattern built(pattern);
    PatternBudget budget(text.size());
    EXPECT_THROW(built.for_each_match(text, budget, [](size_t, size_t) {}), Error) << pattern;
  }
}

TEST(TokenizerPattern, KnownPatternsTakeLongRunsInTheirStride) {
  for (const char* name : {"gpt2", "llama3", "qwen35", "o200k", "tekken"}) {
    const Pattern pattern(known_pattern(name).regex);
    for (const std::string unit : {"a", "A", " ", "\n", " \n", "'", "'A", "\u00AAA", "1", "\u0301", "!", "\u54C8"}) {
      std::string text;
      while (text.size() < 100'000) text += unit;
      EXPECT_NO_THROW(matches(pattern, text + "x")) << name << " on " << unit;  // within the budget, which is linear
    }
  }
}

std::string random_text(std::mt19937& random) {
  static const CodePointRanges all = [] {
    CodePointRanges ranges;
    for (int bit = 0; bit < 13; ++bit)
      for (const auto& range : ranges_of(static_cast<ClassMask>(1 << bit))) ranges.push_back(range);
    return ranges;
  }();
  constexpr std::string_view kPlain = " \n\r\t'sStTrevdmlLAb1/!  ";
  std::string text;
  for (unsigned n = random() % 40 + 1; n > 0; --n) {
    if (random() % 3 > 0) {
      text += kPlain[random() % kPlain.size()];
    } else {
      const auto& [first, last] = all[random() % all.size()];
      append_utf8(text, first + static_cast<uint32_t>(random() % (last - first + 1)));
    }
    if (random() % 16 == 0) text += "\u017F";
  }
  return text;
}

TEST(TokenizerPattern, KnownPatternsAreTheirRegularExpressions) {
  std::mt19937 random(7);
  for (const char* name : {"gpt2", "llama3", "qwen2", "qwen35", "o200k", "tekken"}) {
    const KnownPattern& known = known_pattern(name);
    const Pattern pattern(known.regex);
    for (int i = 0; i < 3000; ++i) {
      const std::string text = random_text(random);
      Strings words;
      for (size_t at = 0; at < text.size();) {
        const size_t end = known.match(known.options, text, at);
        ASSERT_GT(end, at);
        words.push_back(text.substr(at, end - at));
        at = end;
      }
      ASSERT_EQ(words, matches(pattern, text)) << name << " on " << text;
    }
  }
}

TEST(TokenizerPattern, ClassesAreThoseThatWereProbed) {
  const auto golden = golden_json("unicode_classes_hf.json");
  if (!golden) GTEST_SKIP() << "no unicode_classes_hf.json";
  const std::map<std::string, ClassMask> masks = {
      {R"(\p{L})", kLetter}, {R"(\p{N})", kNumber}, {R"(\p{M})", kMark}, {R"(\p{P})", kPunctuation}, {R"(\p{S})", kSymbol},
      {R"(\s)", kSpace},     {R"(\p{Lu})", kLu},    {R"(\p{Ll})", kLl},  {R"(\p{Lt})", kLt},         {R"(\p{Lm})", kLm},
      {R"(\p{Lo})", kLo},    {R"(\d)", kDigit},     {R"(\w)", kWord},    {R"(\p{Han})", kHan}};
  int n_classes = 0;
  for (const auto& [pattern, ranges] : (*golden)["classes"].items()) {
    CodePointRanges want;
    for (const auto& range : ranges) want.emplace_back(range[0], range[1]);
    EXPECT_EQ(ranges_of(masks.at(pattern)), want) << pattern;
    for (const auto& [first, last] : want) {
      EXPECT_TRUE(unicode_classes().of(first) & masks.at(pattern));
      EXPECT_TRUE(unicode_classes().of(last) & masks.at(pattern));
    }
    ++n_classes;
  }
  EXPECT_EQ(n_classes, 14);
}

}  // namespace
}  // namespace lockstep
