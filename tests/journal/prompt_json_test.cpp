// The strict JSON reader: what is one line of JSON, and what is not, compared with nlohmann where both should agree.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "journal/json_line.h"

namespace lockstep {
namespace {

std::string fault_of(std::string_view text) {
  JsonLine json;
  const auto fault = json.parse(text);
  return fault ? fault->code + " " + fault->message : "";
}

std::string repeat(std::string_view part, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += part;
  return out;
}

// The tree again as compact JSON, through all reads.
std::string written(const JsonLine& json, NodeId n) {
  std::string out;
  switch (json.kind(n)) {
    case JsonKind::string:
      return nlohmann::json(json.string(n)).dump();
    case JsonKind::array:
      for (NodeId k = json.first(n); k < json.after(n); k = json.after(k))
        out += concat(out.empty() ? "" : ",", written(json, k));
      return concat("[", out, "]");
    case JsonKind::object:
      for (NodeId k = json.first(n); k < json.after(n); k = json.after(k + 1))
        out += concat(out.empty() ? "" : ",", written(json, k), ":", written(json, k + 1));
      return concat("{", out, "}");
    default:
      return std::string(json.raw(n));
  }
}

TEST(JsonLine, ReadsATree) {
  JsonLine json;
  ASSERT_FALSE(json.parse(R"( {"a": [1, -2.5e1, true, null], "b": {"c": "x\n\u0041\ud83d\ude00\/"}, "d": ""} )"));
  EXPECT_EQ(written(json, json.root()), R"({"a":[1,-2.5e1,true,null],"b":{"c":"x\nA😀/"},"d":""})");
  const NodeId b = json.find(json.root(), "b").value();
  EXPECT_EQ(json.string(json.find(b, "c").value()), "x\nA😀/");
  EXPECT_EQ(json.raw(b), R"({"c": "x\n\u0041\ud83d\ude00\/"})");
  EXPECT_FALSE(json.find(json.root(), "c"));
  const NodeId a = json.find(json.root(), "a").value();
  EXPECT_EQ(json.integer(json.first(a)), 1);
  EXPECT_EQ(json.number(json.after(json.first(a))), -25.0);
  EXPECT_EQ(json.integer(json.after(json.first(a))), -25);
}

TEST(JsonLine, FaultsNameColumnAndReason) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"", "column 1: the line ends where a value should follow"},
      {R"({"a": 1)", "column 8: the line ends where ',' or '}' should follow"},
      {R"({"a": 1,})", "column 9: expected a key in double quotes, found '}'"},
      {R"([1, 2,])", "column 7: expected a value, found ']'"},
      {R"([1 2])", "column 4: expected ',' or ']', found '2'"},
      {R"([1})", "column 3: expected ',' or ']', found '}'"},
      {R"({"a" 1})", "column 6: expected ':', found '1'"},
      {R"({a: 1})", "column 2: expected a key in double quotes, found 'a'"},
      {R"({} {})", "column 4: text after the end of the value"},
      {R"({"a": NaN})", "column 7: NaN is not JSON"},
      {R"({"a": Infinity})", "column 7: Infinity is not JSON"},
      {R"({"a": -Infinity})", "column 7: -Infinity is not JSON"},
      {R"({'a': 1})", "column 2: expected a key in double quotes, found '''"},
      {R"({"a": True})", "column 7: True is not JSON"},
      {R"({"a": "b)", "column 7: a string without its closing quote"},
      {R"({"a": "b\)", "column 9: invalid escape in a string"},
      {R"(["\x41"])", "column 3: invalid escape in a string"},
      {R"(["\u12G4"])", "column 3: \\u needs four hexadecimal digits"},
      {R"(["\u-123"])", "column 3: \\u needs four hexadecimal digits"},
      {R"(["\ud800"])", "column 3: lone surrogate \\ud800"},
      {R"(["\ud800\u0041"])", "column 3: lone surrogate \\ud800"},
      {R"(["\udc00"])", "column 3: lone surrogate \\udc00"},
      {"[\"a\tb\"]", "column 4: control character 0x09 inside a string"},
      {"[\"a\xFF\"]", "column 4: invalid UTF-8 (byte 0xFF)"},
      {"[\"\xED\xA0\x80\"]", "column 3: invalid UTF-8 (byte 0xED)"},
      {"[\"\xC0\xAF\"]", "column 3: invalid UTF-8 (byte 0xC0)"},
      {"[\"\xF0\x9F\x98\"]", "column 3: invalid UTF-8 (byte 0xF0)"},
      {"{\xFF}", "column 2: expected a key in double quotes, found byte 0xFF"},
      {std::string_view("{}\0{}", 5), "column 3: text after the end of the value"},
      {std::string_view("\0\0", 2), "column 1: expected a value, found byte 0x00"},
      {"\xEF\xBB\xBF{}", "column 1: a byte order mark that is not at the start of the file"},
      {R"({"a": 1, "b": 2, "a": 3})", R"(column 18: duplicate key "a")"},
      {R"({"a": 1, "\u0061": 3})", R"(column 10: duplicate key "\u0061")"},
      {R"([01])", "column 2: a number with a leading zero"},
      {R"([1.])", "column 4: expected a digit, found ']'"},
      {R"([-])", "column 3: expected a digit, found ']'"},
      {R"([1e+])", "column 5: expected a digit, found ']'"},
      {R"([.5])", "column 2: expected a value, found '.'"},
      {R"([+5])", "column 2: expected a value, found '+'"},
      {R"([1e400])", "column 2: number out of range: 1e400"},
      {R"([-1e99999999999999999999])", "column 2: number out of range: -1e99999999999999999999"},
      {R"([18446744073709551616])", "column 2: number out of range: 18446744073709551616"},
      {R"([-9223372036854775809])", "column 2: number out of range: -9223372036854775809"},
  };
  for (const auto& [text, message] : cases) EXPECT_EQ(fault_of(text), "invalid_json " + std::string(message)) << text;
}

TEST(JsonLine, DuplicatesAmongManyKeys) {
  std::string text = "{";
  for (int i = 0; i < 5000; ++i) text += "\"k" + std::to_string(i) + "\":" + std::to_string(i) + ",";
  EXPECT_EQ(fault_of(text + "\"last\":0}"), "");
  EXPECT_EQ(fault_of(text + "\"k17\":0,\"k3\":0}"),
            "invalid_json column " + std::to_string(text.size() + 1) + ": duplicate key \"k17\"");
}

TEST(JsonLine, DepthIsLimitedWithoutRecursion) {
  EXPECT_EQ(fault_of(repeat("[", 64) + repeat("]", 64)), "");
  EXPECT_EQ(fault_of(repeat("[", 65) + repeat("]", 65)), "invalid_json column 65: nested deeper than 64 levels");
  EXPECT_EQ(fault_of(repeat("{\"a\":", 1000000)), "invalid_json column 321: nested deeper than 64 levels");
}

TEST(JsonLine, SizeIsLimited) {
  std::string text = "\"" + std::string(kMaxLineBytes - 2, 'x') + "\"";
  EXPECT_EQ(fault_of(text), "");
  EXPECT_EQ(fault_of(text + " "), "line_too_long the line is longer than 16 MiB");
}

TEST(JsonLine, NumbersAtTheBordersOfTheirTypes) {
  JsonLine json;
  const auto integer = [&](std::string_view text) {
    EXPECT_FALSE(json.parse(text)) << text;
    return json.integer(json.root());
  };
  EXPECT_EQ(integer("9223372036854775807"), INT64_MAX);
  EXPECT_EQ(integer("-9223372036854775808"), INT64_MIN);
  EXPECT_EQ(integer("18446744073709551615"), std::nullopt);  // a number, but not in int64
  EXPECT_EQ(integer("8.0"), 8);
  EXPECT_EQ(integer("1e3"), 1000);
  EXPECT_EQ(integer("8.5"), std::nullopt);
  EXPECT_EQ(integer("1e300"), std::nullopt);
  EXPECT_EQ(integer("-0"), 0);
  EXPECT_EQ(integer("1e-400"), 0);  // too small for a double: 0, as every JSON reader takes it
  EXPECT_EQ(integer("0.000000e999999999999999999999"), 0);
  EXPECT_EQ(json.number(json.root()), 0.0);
  EXPECT_FALSE(json.parse("5e-324"));
  EXPECT_EQ(json.number(json.root()), 5e-324);
}

TEST(JsonLine, ShownValuesAreCutBetweenCharacters) {
  EXPECT_EQ(shown(std::string(60, 'a')), std::string(60, 'a'));
  EXPECT_EQ(shown(std::string(61, 'a')), std::string(57, 'a') + "...");
  EXPECT_EQ(shown(concat("a", repeat("ж", 40))), concat("a", repeat("ж", 28), "..."));
  EXPECT_EQ(shown(repeat("👍", 40)), repeat("👍", 14) + "...");
}

// Lines made by damaging good ones: what we accept nlohmann accepts and reads alike; what it refuses we refuse.
TEST(JsonLine, AgreesWithNlohmannOnDamagedLines) {
  const std::string good[] = {
      R"({"custom_id":"a-1","method":"POST","url":"/v1/completions","body":{"prompt":"x\u00e9\n","max_tokens":8,"stop":["a","b"]}})",
      R"({"messages": [{"role": "user", "content": "ключ 👍 \ud83d\ude00"}], "temperature": 0.5, "seed": -12e3, "n": null})",
      R"([[], {}, "", 0, -0.0, 1e5, true, false, null, [[{"a": {"b": [1, 2, 3]}}]]])",
  };
  const std::string_view pieces[] = {"\"", "\\", "{",   "}",    "[",        "]", ",",  ":",    "0",   "-",
                                     ".",  "e",  "\\u", "\xFF", "\xE2\x80", " ", "\t", "null", "\x01"};
  std::mt19937 random(7);
  int n_good = 0;
  JsonLine json;
  for (int round = 0; round < 30000; ++round) {
    std::string text = good[random() % 3];
    for (int edits = 1 + static_cast<int>(random() % 2); edits > 0; --edits) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text.erase(at, 1 + random() % 3);
          break;
        case 1:
          text.insert(at, pieces[random() % std::size(pieces)]);
          break;
        default:
          text[at] = static_cast<char>(random() % 128);
      }
    }
    const auto fault = json.parse(text);
    const bool expected = nlohmann::json::accept(text) && text.find('\0') == std::string::npos;
    if (fault) {
      EXPECT_TRUE(!expected || fault->message.find("duplicate key") != std::string::npos ||
                  fault->message.find("out of range") != std::string::npos)
          << text << "\n"
          << fault->message;
      continue;
    }
    ++n_good;
    ASSERT_TRUE(expected) << text;
    ASSERT_EQ(nlohmann::json::parse(written(json, json.root())), nlohmann::json::parse(text)) << text;
  }
  EXPECT_GT(n_good, 5000);
}

}  // namespace
}  // namespace lockstep
