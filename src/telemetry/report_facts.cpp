#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/units.h"
#include "base/utf8.h"
#include "telemetry/report_page.h"

namespace lockstep {

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxText = 2000;  // bytes of a value from run.json that are shown
constexpr size_t kMaxItems = 200;

const Json kNothing;

const Json& part(const Json& object, const char* name) {
  if (!object.is_object()) return kNothing;
  const auto found = object.find(name);
  return found == object.end() ? kNothing : *found;
}

std::string grouped(double value) {  // 1234567 -> "1,234,567"
  char digits[400];
  std::snprintf(digits, sizeof digits, "%.0f", value);
  std::string text(digits);
  for (auto i = static_cast<std::ptrdiff_t>(text.size()) - 3; i > (text[0] == '-' ? 1 : 0); i -= 3)
    text.insert(text.begin() + i, ',');
  return text;
}

std::string format(const char* pattern, double value) {
  char text[400];
  std::snprintf(text, sizeof text, pattern, value);
  return text;
}

std::string seconds_text(double s) {
  if (s < 0.0995) return format("%.3g ms", 1000 * s);
  if (s < 119.5) return format("%.3g s", s);
  if (s < 7170) return format("%.3g min", s / 60);
  return format("%.3g h", s / 3600);
}

std::string rate_text(double per_s) { return per_s >= 1000 ? grouped(per_s) : format("%.3g", per_s); }

// A text or a number of run.json as people read it; "" for anything else.
std::string text_of(const Json& value) {
  std::string text;
  if (value.is_string())
    text = value.get<std::string>();
  else if (value.is_number_integer())
    text = grouped(value.get<double>());
  else if (value.is_number())
    text = format("%g", value.get<double>());
  else if (value.is_boolean())
    text = value.get<bool>() ? "yes" : "no";
  return text.size() > kMaxText ? lossy_utf8(text.substr(0, kMaxText)) + " …" : text;
}
std::string text_of(const Json& object, const char* name) { return text_of(part(object, name)); }

std::string bytes_text(const Json& value) { return value.is_number_unsigned() ? format_bytes(value.get<uint64_t>()) : ""; }

class Facts {
 public:
  explicit Facts(std::vector<std::pair<std::string, std::string>>& to) : to_(to) {}
  void add(const std::string& name, const std::string& value) {
    if (!value.empty() && to_.size() < kMaxItems) to_.emplace_back(name, value);
  }

 private:
  std::vector<std::pair<std::string, std::string>>& to_;
};

std::string joined(const std::vector<std::string>& parts, const char* between) {
  std::string text;
  for (const std::string& p : parts)
    if (!p.empty()) text += concat(text.empty() ? "" : between, p);
  return text;
}

// 8 ranks on 2 hosts: "node1 x 4, node2 x 4"
std::string hosts_of(const Json& hosts) {
  if (!hosts.is_array()) return "";
  std::map<std::string, int> counts;
  for (const Json& host : hosts)
    if (host.is_string()) ++counts[text_of(host)];
  std::vector<std::string> parts;
  for (const auto& [host, n] : counts) {
    if (parts.size() == 16) {
      parts.push_back(concat("and ", counts.size() - 16, " more"));
      break;
    }
    parts.push_back(n > 1 ? concat(host, " × ", n) : host);
  }
  return joined(parts, ", ");
}

std::string layout_of(const Json& layout) {
  const auto axis = [&](const char* name) {
    const std::string n = text_of(layout, name);
    return n.empty() ? n : concat(name, " ", n);
  };
  const std::string mesh = joined({axis("tp"), axis("pp"), axis("dp")}, " × ");
  const std::string ranks = text_of(layout, "ranks"), threads = text_of(layout, "threads");
  return joined({mesh, ranks.empty() ? "" : concat(ranks, ranks == "1" ? " rank" : " ranks"),
                 threads.empty() ? "" : concat(threads, threads == "1" ? " thread each" : " threads each")},
                ", ");
}

std::string phases_of(const Json& phases) {
  if (!phases.is_object()) return "";
  std::vector<std::string> parts;
  for (const auto& [name, seconds] : phases.items())
    if (seconds.is_number() && parts.size() < 20) parts.push_back(concat(name, " ", seconds_text(seconds.get<double>())));
  return joined(parts, " · ");
}

std::string joules_text(double j) {
  if (j < 999.5) return format("%.3g J", j);
  if (j < 999.5e3) return format("%.3g kJ", j / 1e3);
  return format("%.3g MJ", j / 1e6);
}

std::string energy_of(const Json& run) {
  const Json& phases = part(run, "energy_j");
  if (!phases.is_object()) return "";
  std::vector<std::string> parts;
  for (const auto& [name, joules] : phases.items())
    if (joules.is_number() && parts.size() < 20) parts.push_back(concat(name, " ", joules_text(joules.get<double>())));
  if (const Json& a_token = part(part(run, "joules_per_token"), "generated"); a_token.is_number())
    parts.push_back(concat(joules_text(a_token.get<double>()), " a generated token"));
  const std::string n_gpus = text_of(run, "energy_gpus");
  return joined({joined(parts, " · "), n_gpus.empty() ? "" : concat(n_gpus, n_gpus == "1" ? " GPU" : " GPUs")}, ", ");
}

void add_headlines(ReportFacts& f, const ReportData& d) {
  const ReportData::Totals& t = d.totals;
  const auto rate = [&](double tokens) { return t.busy_s > 0 ? rate_text(tokens / t.busy_s) : "–"; };
  f.headlines.emplace_back(grouped(static_cast<double>(t.n_requests)),
                           t.n_failed > 0 ? concat("requests, ", t.n_failed, " of them failed") : "requests");
  f.headlines.emplace_back(rate(t.prefill_tokens + t.decode_tokens), "tokens/s computed");
  f.headlines.emplace_back(rate(t.generated_tokens), "tokens/s generated");
  f.headlines.emplace_back(seconds_text(d.end_s),
                           d.attempts.size() > 1 ? concat("in ", d.attempts.size(), " attempts") : "from start to end");
  if (t.first_token_s >= 0) f.headlines.emplace_back(seconds_text(t.first_token_s), "to the first token");
}

}  // namespace

ReportFacts facts_of(const std::string& run_json, const ReportData& data, std::vector<std::string> notes) {
  ReportFacts f{.notes = std::move(notes)};
  const Json run = run_json.empty() ? Json() : Json::parse(run_json, nullptr, false);
  if (!run_json.empty() && !run.is_object())
    f.notes.push_back("run.json is not readable: what it says of the run is missing here");
  const ReportData::Totals& t = data.totals;
  const Json& model = part(run, "model");
  f.title = text_of(model, "name");
  if (f.title.empty()) f.title = "run";
  add_headlines(f, data);

  Facts facts(f.facts);
  facts.add("Model", joined({text_of(model, "name"), text_of(model, "format"), text_of(run, "dtype")}, ", "));
  facts.add("Layout", layout_of(part(run, "layout")));
  facts.add("Hosts", hosts_of(part(run, "hosts")));
  facts.add("Device", joined({text_of(run, "device"), text_of(run, "kernel_class")}, ", "));
  facts.add("Tokens", concat(grouped(t.prompt_tokens), " in prompts",
                             t.cached_tokens > 0 ? concat(" (", grouped(t.cached_tokens), " found in the prefix cache)") : "",
                             ", ", grouped(t.generated_tokens), " generated"));
  const Json& rates = part(run, "tokens_per_s");
  if (part(rates, "total").is_number() && part(rates, "generated").is_number())
    facts.add("Throughput of the last attempt",
              concat(rate_text(part(rates, "total").get<double>()), " tokens/s with whole prompts, ",
                     rate_text(part(rates, "generated").get<double>()), " generated"));
  facts.add("Steps", concat(grouped(static_cast<double>(t.n_steps)), " over ", t.n_replicas,
                            t.n_replicas == 1 ? " replica" : " replicas"));
  facts.add("Phases of rank 0, last attempt", phases_of(part(run, "phases_s")));
  facts.add("Energy of the last attempt", energy_of(run));
  const Json& memory = part(run, "memory_bytes");
  facts.add("Memory of rank 0",
            joined({bytes_text(part(memory, "weights")).empty() ? "" : concat("weights ", bytes_text(part(memory, "weights"))),
                    bytes_text(part(memory, "kv")).empty() ? "" : concat("KV pages ", bytes_text(part(memory, "kv")))},
                   ", "));
  facts.add("Input",
            joined({text_of(part(run, "input"), "path"),
                    text_of(part(run, "input"), "lines").empty() ? "" : concat(text_of(part(run, "input"), "lines"), " lines")},
                   ", "));
  facts.add("Program", joined({text_of(part(run, "program"), "name"), text_of(part(run, "program"), "version")}, " "));
  facts.add("Exit code", text_of(run, "exit_code"));

  Facts details(f.details);
  for (const char* group : {"options", "libraries"})
    if (const Json& values = part(run, group); values.is_object())
      for (const auto& [name, value] : values.items())
        details.add(concat(group == std::string("options") ? "--" : "", lossy_utf8(name.substr(0, 100))), text_of(value));
  details.add("Model digest", text_of(model, "digest"));
  details.add("Input digest", text_of(part(run, "input"), "digest"));
  details.add("Digest of completions.jsonl", text_of(run, "completions_digest"));

  if (const Json& warnings = part(run, "warnings"); warnings.is_array())
    for (const Json& w : warnings)
      if (f.notes.size() < kMaxItems && !text_of(w).empty()) f.notes.push_back(text_of(w));
  if (t.n_left_out > 0) f.notes.push_back(concat(t.n_left_out, " rows of timings.h5 with impossible times are left out"));
  if (static_cast<int64_t>(data.ranks.size()) < t.n_ranks)
    f.notes.push_back(concat("of ", t.n_ranks, " ranks ", data.ranks.size(), " are shown side by side"));
  if (static_cast<int64_t>(data.gpus.size()) < t.n_gpus)
    f.notes.push_back(concat("of ", t.n_gpus, " ranks with a GPU ", data.gpus.size(), " are shown"));
  return f;
}

}  // namespace lockstep
