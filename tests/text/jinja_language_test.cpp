// The template language, construct by construct: cases whose answer is visible by eye, then cases.json, whose answers are
// Jinja's own (tests/data/text/make_jinja_cases.py).
#include "base/error.h"
#include "jinja_render.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <fstream>

namespace lockstep::jinja {
namespace {

TEST(JinjaLanguage, TextAndValues) {
  EXPECT_EQ(render("a{{ 1 }}b"), "a1b");
  EXPECT_EQ(render("{{ x }}", R"({"x": "hi"})"), "hi");
  EXPECT_EQ(render("[{{ nothing }}]"), "[]");
  EXPECT_EQ(render("{{ none }} {{ true }} {{ 1.0 }} {{ [1, 'a', none] }} {{ {'k': 2.5} }}"),
            "None True 1.0 [1, 'a', None] {'k': 2.5}");
}

TEST(JinjaLanguage, WhiteSpaceControl) {
  EXPECT_EQ(render("a\n{% if true %}\nb\n{% endif %}\nc"), "a\nb\nc");       // trim_blocks
  EXPECT_EQ(render("a\n   {% if true %}\nb\n  {% endif %}\nc"), "a\nb\nc");  // lstrip_blocks
  EXPECT_EQ(render("a\n  {{ 1 }}\n b"), "a\n  1\n b");                       // neither for {{ }}
  EXPECT_EQ(render("a \n {%- if true -%} \n b {%- endif %} c"), "ab c");
  EXPECT_EQ(render("a  {%+ if true %}b{% endif +%}\nc"), "a  b\nc");
  EXPECT_EQ(render("a\n {# note #}\nb {#- note -#} c"), "a\nbc");
  EXPECT_EQ(render("a {%- raw -%} {{ x }} {%- endraw -%} b"), "a{{ x }}b");
  EXPECT_EQ(render("line\r\nline\n\n"), "line\nline\n");  // one newline at the end goes
}

TEST(JinjaLanguage, Loops) {
  EXPECT_EQ(render("{% for c in 'ab' %}{{ loop.index }}{{ c }}{{ '.' if loop.last else ',' }}{% endfor %}"), "1a,2b.");
  EXPECT_EQ(render("{% for k, v in {'a': 1}.items() %}{{ k }}={{ v }}{% endfor %}"), "a=1");
  EXPECT_EQ(render("{% for x in [1, 2, 3] if x != 2 %}{{ x }}{{ loop.length }} {% endfor %}"), "12 32 ");
  EXPECT_EQ(render("{% for x in [] %}{{ x }}{% else %}none{% endfor %}"), "none");
  EXPECT_EQ(render("{% for x in [1, 2, 3] %}{% if x == 2 %}{% continue %}{% endif %}{{ x }}{% endfor %}"), "13");
  EXPECT_EQ(render("{% for x in [1, 2, 3] %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}"), "1");
}

TEST(JinjaLanguage, AssignmentsStayInTheirBlock) {
  EXPECT_EQ(render("{% set x = 1 %}{% for i in [2, 3] %}{% set x = i %}{% endfor %}{{ x }}"), "1");
  EXPECT_EQ(render("{% for i in [1, 2] %}{{ x is defined }}{% set x = i %}{% endfor %}"), "FalseFalse");
  EXPECT_EQ(render("{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}"), "2");
  EXPECT_EQ(render("{% set s = namespace(x=1) %}{% for i in [2, 3] %}{% set s.x = i %}{% endfor %}{{ s.x }}"), "3");
  EXPECT_EQ(render("{% set x %}block{% endset %}{{ x | upper }}"), "BLOCK");
}

TEST(JinjaLanguage, Macros) {
  EXPECT_EQ(render("{% macro f(a, b='B') %}({{ a }}{{ b }}){% endmacro %}{{ f(1) }}{{ f(b=2, a=3) }}"), "(1B)(32)");
  EXPECT_EQ(render("{% macro f() %}[{{ caller('x') }}]{% endmacro %}{% call(y) f() %}{{ y }}!{% endcall %}"), "[x!]");
  EXPECT_EQ(render("{% macro f(n) %}{{ n }}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}"), "3210");
}

TEST(JinjaLanguage, AttributesAndItemsDiffer) {
  EXPECT_EQ(render("{{ d['items'] }}{% for k, v in d.items() %} {{ k }}{% endfor %}", R"({"d": {"items": 7}})"), "7 items");
  EXPECT_EQ(render("{{ d.a.b }}", R"({"d": {"a": {"b": 1}}})"), "1");
  EXPECT_EQ(render("{{ d.x.y }}", R"({"d": {}})"), "error: 'dict object' has no attribute 'x'");
  EXPECT_EQ(render("{{ l.append(1) }}", R"({"l": []})"), "error: access to attribute 'append' of 'list' object is unsafe.");
  EXPECT_EQ(render("{{ ''.__class__.__mro__ }}"), "error: access to attribute '__class__' of 'str' object is unsafe.");
}

TEST(JinjaLanguage, JsonIsPythons) {
  const std::string values = R"({"v": {"z": "Kö\"ln\n", "a": [1, 2.50, true, null], "n": 12345678901234567890, "e": {}}})";
  EXPECT_EQ(render("{{ v | tojson }}", values),
            R"({"z": "Kö\"ln\n", "a": [1, 2.5, true, null], "n": 12345678901234567890, "e": {}})");
  EXPECT_EQ(render("{{ v.a | tojson(indent=2) }}", values), "[\n  1,\n  2.5,\n  true,\n  null\n]");
  EXPECT_EQ(render("{{ 'é😀' | tojson(ensure_ascii=true) }}"), R"("\u00e9\ud83d\ude00")");
  EXPECT_EQ(render("{{ [1, 2] | map('string') | tojson }}"), "error: Object of type generator is not JSON serializable");
}

TEST(JinjaLanguage, EveryCaseAsJinjaRendersIt) {
  std::ifstream file(LOCKSTEP_TEST_DATA "/text/jinja_cases.json");
  ASSERT_TRUE(file.good());
  const auto data = nlohmann::ordered_json::parse(file);
  const std::string variables = data["variables"].dump();
  ASSERT_GT(data["cases"].size(), 200u);
  for (const auto& item : data["cases"]) {
    const std::string source = item["template"], expected = item["result"];
    const std::string got = render(source, variables);
    if (expected == "error") {
      EXPECT_TRUE(got.starts_with("error: ")) << source << "\n gave " << got;
    } else {
      EXPECT_EQ(got, expected) << source;
    }
  }
}

// The message of the Error that parsing throws.
std::string refusal(const std::string& source) {
  try {
    parse_template(source);
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ExitCode::unreadable);
    return error.what();
  }
  return "parsed";
}

TEST(JinjaLanguage, WhatIsNotSupportedIsRefusedWithItsLine) {
  EXPECT_EQ(refusal("a\n{% include 'x' %}"), "chat template line 2: the statement {% include %} is not supported here");
  EXPECT_EQ(refusal("a\n\n{{ x | frobnicate }}"), "chat template line 3: the filter 'frobnicate' is not supported");
  EXPECT_EQ(refusal("{{ x is frobnicated }}"), "chat template line 1: the test 'frobnicated' is not supported");
  EXPECT_EQ(refusal("{% if x %}\n{% for y in x %}\n{% endfor %}\n"), "chat template line 1: {% if %} is never closed");
  EXPECT_EQ(refusal("{% if x %}{% endfor %}"), "chat template line 1: the statement {% endfor %} is not supported here");
  EXPECT_EQ(refusal("{{ (1 }}"), "chat template line 1: unexpected '}', expected ')'");
  EXPECT_EQ(refusal("{{ 1 +"), "chat template line 1: a tag that never ends, }} expected");
  EXPECT_EQ(refusal("{{ 'abc }}"), "chat template line 1: a string that never ends");
  EXPECT_EQ(refusal("{# abc"), "chat template line 1: a comment that never ends");
  EXPECT_EQ(refusal("{% raw %} abc"), "chat template line 1: a raw block that never ends");
  EXPECT_EQ(refusal("{{ 1 ! 2 }}"), "chat template line 1: unexpected character '!'");
  EXPECT_EQ(refusal("{% break %}"), "chat template line 1: {% break %} outside of a loop");
  EXPECT_EQ(refusal("{% set none = 1 %}"), "chat template line 1: can't assign to 'none'");
  EXPECT_EQ(refusal("{{ }}"), "chat template line 1: unexpected }}, expected an expression");
  EXPECT_EQ(refusal("a\xff"), "chat template: invalid UTF-8 at byte 1");
}

}  // namespace
}  // namespace lockstep::jinja
