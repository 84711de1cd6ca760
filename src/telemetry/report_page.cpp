#include "telemetry/report_page.h"

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"

namespace lockstep {

namespace {

std::string rows_of(const std::vector<std::pair<std::string, std::string>>& pairs) {
  std::string html;
  for (const auto& [name, value] : pairs)
    html += concat("<div><dt>", escape_html(name), "</dt><dd>", escape_html(value), "</dd></div>\n");
  return html;
}

std::string headlines_of(const ReportFacts& facts) {
  std::string html;
  for (const auto& [figure, meaning] : facts.headlines)
    html += concat("<li><b>", escape_html(figure), "</b> <span>", escape_html(meaning), "</span></li>\n");
  return html;
}

std::string notes_of(const ReportFacts& facts) {
  if (facts.notes.empty()) return "";
  std::string html = "<ul class=\"notes\">\n";
  for (const std::string& note : facts.notes) html += concat("<li>", escape_html(note), "</li>\n");
  return html + "</ul>";
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      case '\'':
        safe += "&#39;";
        break;
      default:
        if (static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\t') safe += c;
    }
  }
  return safe;
}

// One pass over the template: what is put in is not looked at again.
std::string report_page(const ReportData& data, const ReportFacts& facts) {
  const std::string json = to_json(data);
  const std::pair<std::string_view, std::string> parts[] = {
      {"nonce", digest128(json).hex()},  // known to nobody who could have put a script into the data
      {"title", escape_html(facts.title)}, {"headlines", headlines_of(facts)},
      {"facts", rows_of(facts.facts)},     {"details", rows_of(facts.details)},
      {"notes", notes_of(facts)},          {"css", std::string(kReportCss)},
      {"js", std::string(kReportJs)},      {"data", json}};
  std::string page;
  std::string_view rest = kReportHtml;
  for (size_t at; (at = rest.find("{{")) != std::string_view::npos;) {
    const size_t end = rest.find("}}", at);
    const std::string_view name = rest.substr(at + 2, end - at - 2);
    const auto part = std::ranges::find(parts, name, [](const auto& p) { return p.first; });
    check(part != std::end(parts), "report.html asks for ", name);
    page.append(rest.substr(0, at)).append(part->second);
    rest.remove_prefix(end + 2);
  }
  return page.append(rest);
}

}  // namespace lockstep
