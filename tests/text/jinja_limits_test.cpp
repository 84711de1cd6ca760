// Work that looks like one step and isn't: each of these ran for minutes, took gigabytes or overflowed the stack once. The
// limits are counted, so that no case here measures time; a case that isn't limited runs into the test's timeout.
#include "base/error.h"
#include "base/utf8.h"
#include "jinja_render.h"
#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::jinja {
namespace {

using testing::HasSubstr;

constexpr const char* kExhausted = "too much work";

std::string repeated(const std::string& part, int n) {
  std::string text;
  for (int i = 0; i < n; ++i) text += part;
  return text;
}

// `expression` 90000 times, with texts of 300000 letters that differ at their ends and a budget to match.
std::string often(const std::string& expression) {
  const Program program = parse_template(
      "{% set x = 'a' * 300000 %}{% set y = x ~ 'b' %}{% set z = x ~ 'c' %}{% set d = {y: 1} %}"
      "{% for i in range(90000) %}{{ '' if " +
      expression + " }}{% endfor %}");
  Interpreter interpreter(program, {}, "2025-01-02 03:04:05");
  interpreter.budget.text_bytes = 16 << 20;
  try {
    return interpreter.render().bytes;
  } catch (const RenderError& error) {
    return "error: " + error.message;
  }
}

TEST(JinjaLimits, LongTextsCompared) {
  EXPECT_THAT(often("y in d"), HasSubstr(kExhausted));
  EXPECT_THAT(often("d[z]"), HasSubstr(kExhausted));
  EXPECT_THAT(often("d.get(z)"), HasSubstr(kExhausted));
  EXPECT_THAT(often("{y: 1} == 1"), HasSubstr(kExhausted));
  EXPECT_THAT(often("[1][y]"), HasSubstr(kExhausted));
  EXPECT_THAT(often("loop[y]"), HasSubstr(kExhausted));
  EXPECT_THAT(often("namespace[y]"), HasSubstr(kExhausted));
  EXPECT_THAT(often("y.removeprefix(z) == 1"), HasSubstr(kExhausted));
  EXPECT_THAT(often("y.removesuffix(z) == 1"), HasSubstr(kExhausted));
  EXPECT_THAT(often("y.startswith((z, z, z, z))"), HasSubstr(kExhausted));
  EXPECT_THAT(often("dict(**d) == 1"), HasSubstr(kExhausted));
  EXPECT_THAT(often("(y, i) in {(y, -1): 1}"), HasSubstr(kExhausted));
}

TEST(JinjaLimits, TextsReadCharacterByCharacter) {
  for (const char* expression : {"x | int", "x | float", "x | title == 1", "x.isalnum()", "x is upper", "x.strip('a')",
                                 "x.split()", "x.splitlines()", "x.center(900000) == 1", "x | escape == 1", "[x] | string == 1",
                                 "x | tojson == 1", "x.count('a') == 1", "x.rfind('bb') == 1", "x[::-1] == 1"}) {
    EXPECT_THAT(often(expression), HasSubstr(kExhausted)) << expression;
  }
  EXPECT_THAT(often("strftime_now('%A' * 9000) == 1"), HasSubstr(kExhausted));
}

TEST(JinjaLimits, ATextJoinedOfManyIsRefusedEarly) {
  EXPECT_THAT(render("{% set x = 'a' * 8000000 %}{{ x" + repeated(" ~ x", 10000) + " }}"), HasSubstr("grows over"));
}

TEST(JinjaLimits, KeysThatShareTheirParts) {
  EXPECT_THAT(
      render("{% set s = namespace(x=(1,)) %}{% for i in range(90) %}{% set s.x = (s.x, s.x) %}{% endfor %}{{ {s.x: 1} }}"),
      HasSubstr(kExhausted));
  EXPECT_THAT(
      render("{% for i in range(90000) %}{{ '' if {1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 6, 7: 7, 8: 8, 9: 9}[0] }}{% endfor %}"),
      HasSubstr(kExhausted));
}

TEST(JinjaLimits, MethodsCountAsTheirObjects) {
  EXPECT_THAT(render("{% set s = namespace(x={}) %}{% for i in range(50000) %}{% set s.x = {'k': s.x.get} %}{% endfor %}"),
              HasSubstr("nested deeper"));
  EXPECT_THAT(render("{% set s = namespace(x=[]) %}{% for i in range(50000) %}{% set s.x = [s.x.index] %}{% endfor %}"),
              HasSubstr("nested deeper"));
  EXPECT_EQ(render("{% set f = {'get': 'x'.upper} %}{{ f['get'] is callable }}{{ [1, 2].index(2) }}"), "True1");
}

TEST(JinjaLimits, TheLengthOfAFilteredLoopIsCountedOnce) {
  EXPECT_EQ(render("{% for i in range(60000) if i %}{{ '' if loop.length == 59999 else 'x' }}{% endfor %}"), "");
  EXPECT_EQ(render("{% for i in range(5) if i != 3 %}{{ loop.length }}{{ loop.revindex }} {% endfor %}"), "44 43 42 41 ");
}

TEST(JinjaLimits, ManyAttributesOfANamespace) {
  std::string names;
  for (int i = 0; i < 5000; ++i) names += "{%set s.a" + std::to_string(i) + "=1%}";
  EXPECT_THAT(render("{% set s = namespace() %}" + names + "{% for i in range(9000) %}{{ s.a4999 }}{% endfor %}"),
              HasSubstr(kExhausted));
}

TEST(JinjaLimits, APathOfManyParts) {
  EXPECT_THAT(render("{{ ['a'] | map(attribute='0.' * 4000000 ~ '0') | list | length }}"), HasSubstr(kExhausted));
  EXPECT_EQ(render("{{ [['a', [{'b': 'c'}]]] | map(attribute='1.0.b') | list }}"), "['c']");
}

TEST(JinjaLimits, TheLeastInteger) {
  EXPECT_THAT(render("{{ range(0, -9223372036854775807 - 1, -1) }}"), HasSubstr("Range too big"));
  EXPECT_EQ(render("{{ '-x'.zfill(-9223372036854775807 - 1) }}"), "-x");
}

TEST(JinjaLimits, NamesAreShort) {
  EXPECT_EQ(render("{{ " + std::string(256, 'a') + " }}"), "");
  for (const std::string& source : {"{{ " + std::string(257, 'a') + " }}", "{{ x." + std::string(257, 'a') + " }}"}) {
    EXPECT_THROW(parse_template(source), Error);
  }
}

TEST(JinjaLimits, TrustThatChangesAtEveryLetter) {
  const auto t = ChatTemplate::parse("{{ ('y' * 1200000).replace('', messages[0].content) }}");
  const auto rendered = t.render({.messages = R"([{"role": "user", "content": "x"}])"});
  ASSERT_FALSE(rendered.ok());
  EXPECT_THAT(rendered.fault().message, HasSubstr("mixes the template and the request"));
  const auto few = ChatTemplate::parse("{{ 'yyy'.replace('', messages[0].content) }}");
  EXPECT_EQ(few.render({.messages = R"([{"role": "user", "content": "x"}])"}).value().size(), 7u);
}

TEST(JinjaLimits, MessagesOfFaultsAreShort) {
  const auto t = ChatTemplate::parse("{{ raise_exception(messages[0].content * 1000000) }}");
  const auto rendered = t.render({.messages = R"([{"role": "user", "content": "aé€"}])"});
  ASSERT_FALSE(rendered.ok());
  EXPECT_LE(rendered.fault().message.size(), 2010u);
  EXPECT_THAT(rendered.fault().message, testing::StartsWith("aé€aé€"));
  EXPECT_THAT(rendered.fault().message, testing::EndsWith(" …"));
  EXPECT_EQ(find_invalid_utf8(rendered.fault().message), std::string_view::npos);
}

TEST(JinjaLimits, MessagesOfFaultsSaySomething) {
  for (const char* source : {"{{ raise_exception(nowhere) }}", "{{ raise_exception('') }}"}) {
    const auto rendered = ChatTemplate::parse(source).render({.messages = R"([{"role": "user", "content": "x"}])"});
    ASSERT_FALSE(rendered.ok());
    EXPECT_THAT(rendered.fault().message, HasSubstr("without a message"));
  }
}

TEST(JinjaLimits, MessagesOfFaultsAreUtf8) {
  for (const char* source : {"{{ '%é' % 1 }}", "{{ '{:é}'.format(1) }}", "{{ strftime_now('%é') }}"}) {
    const auto rendered = ChatTemplate::parse(source).render({.messages = R"([{"role": "user", "content": "x"}])"});
    ASSERT_FALSE(rendered.ok());
    EXPECT_EQ(find_invalid_utf8(rendered.fault().message), std::string_view::npos) << source;
  }
}

}  // namespace
}  // namespace lockstep::jinja
