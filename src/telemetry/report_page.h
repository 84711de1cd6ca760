// report.html: one page that needs nothing else, neither network nor files. What comes from files is text on it, never markup
// or script: it is escaped, and the page's own policy lets no other script run and nothing be loaded.
//   atomic_write(path, report_page(reduce(timings), facts_of(run_json, data, notes)));
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "telemetry/report_data.h"

namespace lockstep {

struct ReportFacts {
  std::string title;                                           // of the run: its model
  std::vector<std::pair<std::string, std::string>> headlines;  // figure, what it is
  std::vector<std::pair<std::string, std::string>> facts;      // name, value
  std::vector<std::pair<std::string, std::string>> details;    // likewise, folded away
  std::vector<std::string> notes;                              // warnings of the run, and what the reader must know
};

// run_json: text of run.json; empty where there is none. What is missing or of another type in it is left out.
ReportFacts facts_of(const std::string& run_json, const ReportData& data, std::vector<std::string> notes);

std::string report_page(const ReportData& data, const ReportFacts& facts);

std::string escape_html(std::string_view text);  // as text or in a quoted attribute

// The page's parts as they lie in report.html, report.css and report.js; made by the build.
extern const std::string_view kReportHtml, kReportCss, kReportJs;

}  // namespace lockstep
