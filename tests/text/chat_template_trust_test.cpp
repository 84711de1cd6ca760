// No character of the request may end up in a trusted piece, through any operation of the language and in any real template;
// and what the template writes stays trusted.
#include "text/chat_template.h"

#include "base/utf8.h"
#include "jinja_render.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// "abc" in letters that no template holds (U+E061 …), so that their way can be followed.
std::string disguised(const std::string& text) {
  std::string out;
  for (const char c : text) append_utf8(out, 0xE000 + static_cast<unsigned char>(c));
  return out;
}

bool is_disguised(uint32_t c) { return c >= 0xE000 && c < 0xE100; }

void disguise(Json& value, const std::string& key = {}) {
  static const std::vector<std::string> kept = {"role", "type", "tool_call_id", "id"};  // choices that templates branch on
  if (value.is_string() && std::find(kept.begin(), kept.end(), key) == kept.end()) {
    value = disguised(value.get<std::string>());
  } else if (value.is_array()) {
    for (Json& item : value) disguise(item);
  } else if (value.is_object()) {
    for (auto& [name, item] : value.items()) disguise(item, name);
  }
}

// `text` with o for trusted and x for untrusted letters of each byte: "ab|ox".
std::string marks(const std::string& source, const std::string& variables) {
  const jinja::Program program = jinja::parse_template(source);
  jinja::Budget budget;
  jinja::Interpreter::Variables named;
  const jinja::Value values = jinja::read_json(variables, false, budget);
  for (const auto& [key, value] : values.dict()->entries) named.emplace_back(key.text()->bytes, value);
  const MarkedText text = jinja::Interpreter(program, named, kDefaultNow).render();
  std::string out = text.bytes + "|";
  for (size_t i = 0; i < text.bytes.size(); ++i) out += text.trusted_at(i) ? 'o' : 'x';
  return out;
}

TEST(ChatTemplateTrust, EveryOperationKeepsTheMarks) {
  const auto m = [](const std::string& expression) {
    return marks("{{ " + expression + " }}", R"({"u": "Ab c", "n": 7, "l": ["p", "q"], "d": {"k": "v"}, "w": " x "})");
  };
  EXPECT_EQ(m("'t' + u"), "tAb c|oxxxx");
  EXPECT_EQ(m("'t' ~ u ~ 't'"), "tAb ct|oxxxxo");
  EXPECT_EQ(m("('t' + u)[0:2]"), "tA|ox");
  EXPECT_EQ(m("('t' + u)[::-1]"), "c bAt|xxxxo");
  EXPECT_EQ(m("('t' + u)[1]"), "A|x");
  EXPECT_EQ(m("('t' + u) | upper"), "TAB C|oxxxx");
  EXPECT_EQ(m("('t' + u).title()"), "Tab C|oxxxx");
  EXPECT_EQ(m("(' t' + w) | trim"), "t x|oxx");
  EXPECT_EQ(m("('t,' + u).split(',')[1]"), "Ab c|xxxx");
  EXPECT_EQ(m("('t' + u) | replace('b', 'T')"), "tAT c|oxoxx");
  EXPECT_EQ(m("'tBt'.replace('B', u)"), "tAb ct|oxxxxo");
  EXPECT_EQ(m("u.replace('A', '').replace('b', '')"), " c|xx");
  EXPECT_EQ(m("l | join('-')"), "p-q|xox");
  EXPECT_EQ(m("u.join(['t', 't'])"), "tAb ct|oxxxxo");
  EXPECT_EQ(m("'%s-%s' % ('t', u)"), "t-Ab c|ooxxxx");
  EXPECT_EQ(m("'{}-{}'.format('t', u)"), "t-Ab c|ooxxxx");
  EXPECT_EQ(m("u.format('t')"), "Ab c|xxxx");
  EXPECT_EQ(m("'t' * 2 + 'p' | string + l[0] * 2"), "ttppp|oooxx");
  EXPECT_EQ(m("u | tojson"), "\"Ab c\"|xxxxxx");
  EXPECT_EQ(m("['t', u] | tojson"), "[\"t\", \"Ab c\"]|xxxxxxxxxxxxx");
  EXPECT_EQ(m("['t'] | tojson"), "[\"t\"]|ooooo");
  EXPECT_EQ(m("[u]"), "['Ab c']|xxxxxxxx");
  EXPECT_EQ(m("d"), "{'k': 'v'}|xxxxxxxxxx");
  EXPECT_EQ(m("d | items | first | join('=')"), "k=v|xox");
  EXPECT_EQ(m("n"), "7|x");
  EXPECT_EQ(m("n + 1"), "8|x");
  EXPECT_EQ(m("'12' | int + 1"), "13|oo");
  EXPECT_EQ(m("l | map('upper') | list | last"), "Q|x");
  EXPECT_EQ(m("'t' if u else 'f'"), "t|o");
  EXPECT_EQ(m("{'Ab c': 't'}[u]"), "t|o");
  EXPECT_EQ(m("u | length"), "4|o");
  EXPECT_EQ(m("'t' | indent(2, true) + u | indent(1, true)"), "  t Ab c|ooooxxxx");
  EXPECT_EQ(m("'t' | center(3)"), " t |ooo");
  EXPECT_EQ(m("(u | truncate(1, true, '', 0)) + (u | default('t'))"), "AAb c|xxxxx");
  EXPECT_EQ(m("u | escape + ('<' | escape)"), "Ab c&lt;|xxxxoooo");
  EXPECT_EQ(m("strftime_now('%Y')"), "2025|oooo");
  EXPECT_EQ(m("u | list | sort | join"), " Abc|xxxx");
  EXPECT_EQ(m("dict(a=u).a ~ namespace(b=u).b"), "Ab cAb c|xxxxxxxx");
}

TEST(ChatTemplateTrust, BlocksKeepTheMarks) {
  const std::string v = R"({"u": "ab"})";
  EXPECT_EQ(marks("{% set x %}t{{ u }}{% endset %}{{ x }}", v), "tab|oxx");
  EXPECT_EQ(marks("{% macro f(a) %}t{{ a }}{% endmacro %}{{ f(u) | upper }}", v), "TAB|oxx");
  EXPECT_EQ(marks("{% filter upper %}t{{ u }}{% endfilter %}", v), "TAB|oxx");
  EXPECT_EQ(marks("{% macro f() %}t{{ caller() }}{% endmacro %}{% call f() %}{{ u }}{% endcall %}", v), "tab|oxx");
  EXPECT_EQ(marks("{% for c in u %}{{ c }}-{% endfor %}", v), "a-b-|xoxo");
}

TEST(ChatTemplateTrust, RealTemplatesWithDisguisedRequests) {
  const std::filesystem::path goldens = std::filesystem::path(LOCKSTEP_SHARED) / "goldens";
  if (!std::filesystem::exists(goldens / "templates.json")) GTEST_SKIP() << "no golden data at " << goldens;
  std::ifstream file(goldens / "templates.json");
  const Json data = Json::parse(file);
  size_t n_disguised = 0, n_rendered = 0;
  for (const Json& result : data["results"]) {
    const std::string name = result["t"];
    std::ostringstream source;
    source << std::ifstream(goldens / "templates" / (name + ".jinja")).rdbuf();
    const auto chat_template = ChatTemplate::parse(source.str());
    for (Json conversation : data["conversations"]) {
      disguise(conversation["messages"]);
      ChatInput input;
      input.messages = conversation["messages"].dump();
      if (conversation.contains("tools")) {
        disguise(conversation["tools"]);
        input.tools = conversation["tools"].dump();
      }
      input.bos_text = "<s>";
      input.eos_text = "</s>";
      const auto rendered = chat_template.render(input);
      if (!rendered.ok()) continue;
      ++n_rendered;
      for (const TextPiece& piece : rendered.value()) {
        size_t n_here = 0;
        for (size_t at = 0; at < piece.text.size();) {
          const CodePoint c = decode_utf8(piece.text, at);
          n_here += is_disguised(c.value) ? 1 : 0;
          at += c.length;
        }
        n_disguised += n_here;
        EXPECT_FALSE(piece.trusted && n_here > 0) << name << ", " << conversation["name"] << ": " << piece.text;
        if (piece.trusted) continue;
        for (const char* special : {"<|", "|>", "[INST]", "</s>", "<s>", "<start_of_turn>", "<think>", "<tool_call>"}) {
          EXPECT_EQ(piece.text.find(special), std::string::npos) << name << ", " << conversation["name"] << ": " << piece.text;
        }
      }
    }
  }
  EXPECT_GT(n_rendered, 700u);
  EXPECT_GT(n_disguised, 30'000u);
}

}  // namespace
}  // namespace lockstep
