// Templates and requests that try to use up time, memory or stack. Each has to end as an error, and quickly: the limits are
// counted, so that no case here measures time.
#include "base/error.h"
#include "jinja_render.h"
#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::jinja {
namespace {

using testing::HasSubstr;

std::string repeated(const std::string& part, int n) {
  std::string text;
  for (int i = 0; i < n; ++i) text += part;
  return text;
}

constexpr const char* kExhausted = "too much work";
constexpr const char* kTooLong = "grows over";

TEST(JinjaHostile, Loops) {
  EXPECT_THAT(render("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}"),
              HasSubstr(kExhausted));
  EXPECT_THAT(render("{% for a in range(5000) %}{% for b in range(5000) %}x{% endfor %}{% endfor %}"), HasSubstr(kExhausted));
  EXPECT_THAT(render("{{ range(100001) }}"), HasSubstr("Range too big"));
  EXPECT_THAT(render("{{ range(-9223372036854775807, 9223372036854775807) }}"), HasSubstr("Range too big"));
  EXPECT_EQ(render("{{ range(0, 9223372036854775807, 9223372036854775807) | list }}"), "[0]");
}

TEST(JinjaHostile, Strings) {
  EXPECT_THAT(render("{{ 'a' * 1000000000 }}"), HasSubstr(kTooLong));
  EXPECT_THAT(render("{{ 'a' * 9223372036854775807 }}"), HasSubstr(kTooLong));
  EXPECT_THAT(render("{% set s = namespace(x='abc') %}{% for i in range(99) %}{% set s.x = s.x + s.x %}{% endfor %}"),
              HasSubstr(kTooLong));
  EXPECT_THAT(render("{% set s = namespace(x='abc') %}{% for i in range(99) %}{% set s.x = s.x ~ s.x %}{% endfor %}"),
              HasSubstr(kTooLong));
  EXPECT_THAT(render("{% set x = 'a' * 1000000 %}{{ x.replace('a', x) }}"), HasSubstr(kTooLong));
  EXPECT_THAT(render("{% set x = 'a' * 1000000 %}{{ x.replace('', x) }}"), HasSubstr(kTooLong));
  EXPECT_THAT(render("{% set x = 'a' * 1000000 %}{{ x.join(range(1000) | map('string')) }}"), HasSubstr(kTooLong));
  EXPECT_THAT(render("{% set x = 'a' * 1000000 %}{{ range(1000) | join(x) }}"), HasSubstr(kTooLong));
  EXPECT_THAT(render("{% set x = 'a' * 1000000 %}{% for i in range(99) %}{{ x }}{% endfor %}"), HasSubstr("writes more than"));
  EXPECT_THAT(render("{{ '%999999999d' % 1 }}"), HasSubstr("too wide"));
  EXPECT_THAT(render("{{ '{:>999999999}'.format(1) }}"), HasSubstr("too wide"));
  EXPECT_THAT(render("{{ 'x'.center(999999999) }}"), HasSubstr(kTooLong));
  EXPECT_THAT(render("{{ 'x'.zfill(9223372036854775807) }}"), HasSubstr(kTooLong));
  EXPECT_THAT(render("{{ 'x' | indent(999999999) }}"), HasSubstr("too many blanks"));
  EXPECT_THAT(render("{{ [1] | tojson(indent=999999999) }}"), HasSubstr("too many blanks"));
  EXPECT_THAT(render("{% set x = 'ab' * 4000000 %}{% for i in range(1000) %}{{ 'ba' * 9 in x }}{% endfor %}"),
              HasSubstr(kExhausted));
  EXPECT_THAT(render("{% set x = 'ab' * 4000000 %}{% for i in range(1000) %}{{ x[5] == x[-5] }}{{ x | length }}{% endfor %}"),
              HasSubstr(kExhausted));
}

TEST(JinjaHostile, SearchesThatAreQuadraticInOtherLibraries) {
  // Each would take 10^13 steps where a search compares at each place.
  const std::string long_texts = "{% set x = 'a' * 4000000 %}{% set y = 'a' * 2000000 + 'b' %}";
  EXPECT_EQ(render(long_texts + "{{ y in x }}{{ x.find(y) }}"), "False-1");
  EXPECT_EQ(render(long_texts + "{% set z = 'b' + 'a' * 2000000 %}{{ x.rfind(z) }}"), "-1");
  EXPECT_EQ(render(long_texts + "{{ x.split(y) | length }}{{ x.count(y) }}{{ x.replace(y, '') == x }}"), "10True");
}

TEST(JinjaHostile, Lists) {
  EXPECT_THAT(render("{{ [1] * 1000000000 }}"), HasSubstr(kExhausted));
  EXPECT_THAT(render("{{ [1] * 9223372036854775807 }}"), HasSubstr(kExhausted));
  EXPECT_THAT(render("{% set s = namespace(x=[1]) %}{% for i in range(99) %}{% set s.x = s.x + s.x %}{% endfor %}"),
              HasSubstr(kExhausted));
  EXPECT_THAT(render("{% set s = namespace(x=[1]) %}{% for i in range(99) %}{% set s.x = [s.x, s.x] %}{% endfor %}{{ s.x }}"),
              HasSubstr(kExhausted));
  EXPECT_THAT(
      render("{% set s = namespace(x=[1]) %}{% for i in range(99) %}{% set s.x = [s.x, s.x] %}{% endfor %}{{ s.x | tojson }}"),
      HasSubstr(kExhausted));
  EXPECT_THAT(
      render("{% set s = namespace(x=[1], y=[1]) %}{% for i in range(99) %}{% set s.x = [s.x, s.x] %}{% set s.y = [s.y, s.y] %}"
             "{% endfor %}{{ s.x == s.y }}"),
      HasSubstr(kExhausted));
  EXPECT_EQ(render("{{ [1, 2] | batch(90000, 0) | map('length') | list }}"), "[90000]");
  EXPECT_THAT(render("{{ range(9) | slice(99999999999) | list }}"), HasSubstr("at most 100000"));
  EXPECT_THAT(render("{% for i in range(99) %}{{ range(9) | slice(100000) | list | length }}{% endfor %}"),
              HasSubstr(kExhausted));
  EXPECT_THAT(
      render("{% set d = namespace(x={}) %}{% for i in range(3000) %}{% set d.x = dict(d.x, **{'k' ~ i: i}) %}{% endfor %}"),
      HasSubstr(kExhausted));
}

TEST(JinjaHostile, Nesting) {
  EXPECT_THAT(render("{% set s = namespace(x=[]) %}{% for i in range(1000) %}{% set s.x = [s.x] %}{% endfor %}"),
              HasSubstr("nested deeper"));
  EXPECT_THAT(render("{% set s = namespace(x={}) %}{% for i in range(1000) %}{% set s.x = {'k': s.x} %}{% endfor %}"),
              HasSubstr("nested deeper"));
  EXPECT_THAT(render("{% set s = namespace() %}{% set s.x = s %}{{ s }}"), HasSubstr("too deep"));
  EXPECT_THAT(render("{% set s = namespace() %}{% set s.x = [s] %}{{ s.x == s.x }}{{ s.x }}"), HasSubstr("too deep"));
  EXPECT_THAT(render("{% set s = namespace() %}{% set s.x = [s] %}{{ s | tojson }}"), HasSubstr("not JSON serializable"));
  EXPECT_THAT(render("{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}"), HasSubstr("deeper than 64"));
  EXPECT_THAT(render("{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}"), HasSubstr("deeper than 64"));
  EXPECT_THAT(render("{% macro f() %}" + repeated("{% if true %}", 45) + "{{ " + repeated("(", 20) + "f()" + repeated(")", 20) +
                     " }}" + repeated("{% endif %}", 45) + "{% endmacro %}{{ f() }}"),
              HasSubstr("too deeply"));
}

void expect_refused(const std::string& source, const std::string& why) {
  try {
    parse_template(source);
    ADD_FAILURE() << "parsed: " << source.substr(0, 60);
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ExitCode::unreadable);
    EXPECT_THAT(error.what(), HasSubstr(why));
  }
}

TEST(JinjaHostile, SourcesThatNestTooDeep) {
  for (const auto& [open, close] : {std::pair("(", ")"),
                                    {"[", "]"},
                                    {"{1: ", "}"},
                                    {"-", ""},
                                    {"not ", ""},
                                    {"f(", ")"},
                                    {"x[", "]"},
                                    {"1 if 1 else ", ""},
                                    {"x is eq(", ")"},
                                    {"x | d(", ")"}}) {
    expect_refused("{{ " + repeated(open, 10000) + "1" + repeated(close, 10000) + " }}", "deeper than 100");
  }
  for (const char* chain : {".a", "[0]", "()", " | trim", " + 1", " and 1", " ** 1"}) {
    expect_refused("{{ x" + repeated(chain, 10000) + " }}", "deeper than 100");
  }
  expect_refused(repeated("{% if 1 %}", 10000) + repeated("{% endif %}", 10000), "deeper than 100");
  expect_refused("{% set " + repeated("(", 10000) + "a" + repeated(")", 10000) + " = 1 %}", "deeper than 100");
  expect_refused(std::string(kMaxTemplateBytes + 1, 'x'), "at most 262144");
}

TEST(JinjaHostile, LongSourcesThatDoNotNestAreFine) {
  EXPECT_EQ(render("{{ 1" + repeated(" ~ 1", 10000) + " }}").size(), 10001u);
  EXPECT_EQ(render("{% if 0 %}" + repeated("{% elif 0 %}", 10000) + "{% else %}x{% endif %}"), "x");
  EXPECT_EQ(render("{{ [" + repeated("1, ", 10000) + "] | length }}"), "10000");
}

TEST(JinjaHostile, Numbers) {
  EXPECT_THAT(render("{{ 9223372036854775807 + 1 }}"), HasSubstr("beyond 64 bits"));
  EXPECT_THAT(render("{{ -9223372036854775807 - 2 }}"), HasSubstr("beyond 64 bits"));
  EXPECT_THAT(render("{{ 9223372036854775807 * 2 }}"), HasSubstr("beyond 64 bits"));
  EXPECT_THAT(render("{{ -(-9223372036854775807 - 1) }}"), HasSubstr("beyond 64 bits"));
  EXPECT_THAT(render("{{ (-9223372036854775807 - 1) // -1 }}"), HasSubstr("beyond 64 bits"));
  EXPECT_EQ(render("{{ (-9223372036854775807 - 1) % -1 }}"), "0");
  EXPECT_THAT(render("{{ (-9223372036854775807 - 1) | abs }}"), HasSubstr("beyond 64 bits"));
  EXPECT_THAT(render("{{ 10 ** 100 }}"), HasSubstr("beyond 64 bits"));
  EXPECT_EQ(render("{{ 1 ** 9223372036854775807 }}"), "1");
  EXPECT_THAT(render("{{ 1e300 | int }}"), HasSubstr("beyond 64 bits"));
  EXPECT_THAT(render("{{ '99999999999999999999' | int }}"), HasSubstr("beyond 64 bits"));
  EXPECT_EQ(render("{{ 'abc'[9223372036854775807] }}{{ 'abc'[-9223372036854775807:9223372036854775807:9223372036854775807] }}"),
            "a");
  EXPECT_EQ(render("{{ [1, 2][-9223372036854775807 - 1] }}{{ [1, 2][::-9223372036854775807 - 1] }}"), "[2]");
  expect_refused("{{ 99999999999999999999 }}", "out of range");
}

TEST(JinjaHostile, ThingsThatOutliveTheirBlock) {
  EXPECT_THAT(render("{% set s = namespace() %}{% for i in [1] %}{% macro f() %}{{ i }}{% endmacro %}{% set s.f = f %}{% "
                     "endfor %}{{ s.f() }}"),
              HasSubstr("outside of the block"));
  EXPECT_THAT(render("{% set s = namespace() %}{% for i in [1] %}{% set s.l = loop %}{% endfor %}{{ s.l.index }}"),
              HasSubstr("after its end"));
  EXPECT_THAT(render("{% set s = namespace() %}{% for i in [1] %}{% set s.l = loop.changed %}{% endfor %}{{ s.l(1) }}"),
              HasSubstr("after its end"));
  EXPECT_THAT(render("{% set s = namespace() %}{% for i in [1] recursive %}{% set s.l = loop %}{% endfor %}{{ s.l([1]) }}"),
              HasSubstr("recursive"));
}

TEST(JinjaHostile, NothingOfTheHostIsReachable) {
  for (const char* source : {"{{ ''.__class__.__mro__[1].__subclasses__() }}", "{{ self.__init__.__globals__ }}",
                             "{{ cycler.__init__.__globals__.os }}", "{{ lipsum.__globals__['os'].popen('id') }}",
                             "{{ (messages | map('attr', '__class__')) | list }}", "{{ range.__self__.open('x') }}",
                             "{{ '{0.__class__}'.format(1) }}", "{{ namespace.__class__.x }}"}) {
    EXPECT_THAT(render(source, R"({"messages": [1]})"), testing::StartsWith("error: ")) << source;
  }
}

TEST(JinjaHostile, ManyKeysAndManyNames) {
  std::string json = R"({"d": {)", names;
  for (int i = 0; i < 50000; ++i) json += (i > 0 ? ",\"k" : "\"k") + std::to_string(i) + "\":1";
  EXPECT_EQ(render("{{ d | length }}{% for k in d %}{{ '' if k in d else 'x' }}{% endfor %}", json + "}}"), "50000");
  for (int i = 0; i < 9000; ++i) names += "{%set n" + std::to_string(i) + "=1%}";
  EXPECT_THAT(render(names + "{% for i in range(100000) %}{{ n8999 }}{% endfor %}"), HasSubstr(kExhausted));
}

TEST(JinjaHostile, LongConversationsGetMoreFuel) {
  std::string messages = "[";
  for (int i = 0; i < 5000; ++i) messages += std::string(i > 0 ? "," : "") + R"({"role": "user", "content": "x"})";
  const auto t = ChatTemplate::parse(
      "{% for m in messages %}{% for k in range(50) %}{{ '' if k > 60 }}{% endfor %}{{ m.content }}{% endfor %}");
  const auto rendered = t.render({.messages = messages + "]"});
  ASSERT_TRUE(rendered.ok()) << rendered.fault().message;
  EXPECT_EQ(rendered.value().at(0).text.size(), 5000u);
}

}  // namespace
}  // namespace lockstep::jinja
