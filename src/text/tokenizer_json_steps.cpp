// normalizer, pre_tokenizer and decoder of a tokenizer.json.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/utf8.h"
#include "text/tokenizer_parts.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 8;           // of Sequence in Sequence
constexpr size_t kMaxSteps = 64;       // each passes over every text
constexpr size_t kMaxTextBytes = 256;  // that a step puts in

[[noreturn]] void unsupported(std::string_view part, std::string_view what) {
  fail(ExitCode::unreadable, "tokenizer.json: ", part, " ", what, " isn't supported");
}

std::string type_of(const json& step) { return step.is_object() ? step.value("type", "") : ""; }

// A Sequence is its steps.
void flatten(const json& step, const char* part, const char* list, int depth, std::vector<json>& steps) {
  if (step.is_null()) return;
  if (depth > kMaxDepth) unsupported(part, "Sequence nested so deeply");
  if (type_of(step) != "Sequence") {
    if (steps.size() == kMaxSteps) unsupported(part, "a Sequence of so many steps");
    steps.push_back(step);
    return;
  }
  for (const json& inner : step.at(list)) flatten(inner, part, list, depth + 1, steps);
}

std::vector<json> flat(const json& step, const char* part, const char* list) {
  std::vector<json> steps;
  flatten(step, part, list, 0, steps);
  return steps;
}

// {"String": s}; a regular expression only where it is a fixed text.
std::string fixed_pattern(const json& step, const char* part) {
  const json& pattern = step.at("pattern");
  if (pattern.contains("String") && !pattern["String"].get<std::string>().empty()) return pattern["String"];
  const std::string regex = pattern.value("Regex", "");
  if (!regex.empty() && regex.find_first_of("\\^$.[]|()?*+{}") == std::string::npos) return regex;
  unsupported(part, concat("Replace of ", pattern.dump(-1, ' ', true).substr(0, 200)));
}

std::string short_text(const json& text, const char* part) {
  std::string out = text;
  if (out.size() > kMaxTextBytes) unsupported(part, concat("a text of ", out.size(), " bytes"));
  return out;
}

// One character, as the format has it.
std::string metaspace_of(const json& step) {
  std::string text = step.value("replacement", "\u2581");
  if (count_code_points(text) != 1) unsupported("Metaspace", concat("replacement '", text.substr(0, kMaxTextBytes), "'"));
  return text;
}

SplitBehavior behavior_of(const json& step) {
  const std::string name = step.value("behavior", "Isolated");
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  unsupported("pre_tokenizer", concat("behavior '", name, "'"));
}

PretokenizeStep::Prefix prefix_of(const json& step) {
  if (!step.contains("prepend_scheme"))
    return step.value("add_prefix_space", true) ? PretokenizeStep::Prefix::always : PretokenizeStep::Prefix::never;
  const std::string name = step.at("prepend_scheme");
  if (name == "always") return PretokenizeStep::Prefix::always;
  if (name == "first") return PretokenizeStep::Prefix::first;
  if (name == "never") return PretokenizeStep::Prefix::never;
  unsupported("Metaspace", concat("prepend_scheme '", name, "'"));
}

PretokenizeStep parse_split(const json& step) {
  const json& pattern = step.at("pattern");
  PretokenizeStep out{.kind = PretokenizeStep::Kind::pattern};
  if (pattern.contains("Regex")) {
    out = pattern_step(pattern["Regex"].get<std::string>());
  } else {
    out.text = pattern.at("String");
    if (out.text.empty()) unsupported("pre_tokenizer", "Split at an empty text");
  }
  out.behavior = behavior_of(step);
  out.invert = step.value("invert", false);
  return out;
}

PretokenizeStep parse_pretokenize_step(const json& step) {
  using Kind = PretokenizeStep::Kind;
  const std::string type = type_of(step);
  if (type == "ByteLevel") {
    const bool prefix = step.value("add_prefix_space", true);
    return {.kind = Kind::byte_level,
            .prefix = prefix ? PretokenizeStep::Prefix::always : PretokenizeStep::Prefix::never,
            .uses_regex = step.value("use_regex", true)};
  }
  if (type == "Split") return parse_split(step);
  if (type == "Digits")
    return {.kind = Kind::characters,
            .classes = kSplitDigit,
            .behavior = step.value("individual_digits", false) ? SplitBehavior::isolated : SplitBehavior::contiguous};
  if (type == "Punctuation") return {.kind = Kind::characters, .classes = kSplitPunctuation, .behavior = behavior_of(step)};
  if (type == "WhitespaceSplit") return {.kind = Kind::characters, .classes = kSpace, .behavior = SplitBehavior::removed};
  if (type == "Metaspace")
    return {
        .kind = Kind::metaspace, .prefix = prefix_of(step), .text = metaspace_of(step), .splits = step.value("split", true)};
  unsupported("pre_tokenizer", concat("'", type, "'"));
}

}  // namespace

PretokenizeStep pattern_step(std::string_view regex) {
  PretokenizeStep step{.kind = PretokenizeStep::Kind::pattern, .known = find_known_pattern(regex)};
  if (step.known == nullptr) step.pattern = std::make_shared<const Pattern>(regex);
  return step;
}

Normalizer parse_normalizer(const json& normalizer) {
  using Kind = NormalizeStep::Kind;
  std::vector<NormalizeStep> steps;
  for (const json& step : flat(normalizer, "normalizer", "normalizers")) {
    const std::string type = type_of(step);
    if (type == "NFC") {
      steps.push_back({.kind = Kind::nfc});
    } else if (type == "NFD") {
      steps.push_back({.kind = Kind::nfd});
    } else if (type == "NFKC") {
      steps.push_back({.kind = Kind::nfkc});
    } else if (type == "NFKD") {
      steps.push_back({.kind = Kind::nfkd});
    } else if (type == "Prepend") {
      steps.push_back({.kind = Kind::prepend, .text = short_text(step.at("prepend"), "Prepend")});
    } else if (type == "Replace") {
      steps.push_back({.kind = Kind::replace,
                       .text = fixed_pattern(step, "normalizer"),
                       .replacement = short_text(step.at("content"), "Replace")});
    } else if (type == "Strip") {
      steps.push_back({.kind = Kind::strip, .strip_left = step.at("strip_left"), .strip_right = step.at("strip_right")});
    } else {
      unsupported("normalizer", concat("'", type, "'"));
    }
  }
  return Normalizer(std::move(steps));
}

Pretokenizer parse_pretokenizer(const json& pre_tokenizer) {
  std::vector<PretokenizeStep> steps;
  for (const json& step : flat(pre_tokenizer, "pre_tokenizer", "pretokenizers")) steps.push_back(parse_pretokenize_step(step));
  return Pretokenizer(std::move(steps));
}

// The chains that occur: ByteLevel; Metaspace; Replace.. ByteFallback? Fuse? Strip?, in this order.
DecoderOptions parse_decoder(const json& decoder) {
  using Kind = DecoderOptions::Kind;
  const std::vector<json> steps = flat(decoder, "decoder", "decoders");
  DecoderOptions out;
  if (steps.empty()) return out;
  const std::string first = type_of(steps[0]);
  if (first == "ByteLevel" || first == "Metaspace") {
    if (steps.size() > 1) unsupported("decoder", concat("chain after '", first, "'"));
    out.kind = first == "ByteLevel" ? Kind::byte_level : Kind::pieces;
    if (first == "Metaspace") {
      out.metaspace = metaspace_of(steps[0]);
      out.drops_first_metaspace = prefix_of(steps[0]) != PretokenizeStep::Prefix::never;
    }
    return out;
  }
  out.kind = Kind::pieces;
  int stage = 0;  // 0 Replace, 1 ByteFallback, 2 Fuse, 3 Strip
  for (const json& step : steps) {
    const std::string type = type_of(step);
    const int next = type == "Replace" ? 0 : type == "ByteFallback" ? 1 : type == "Fuse" ? 2 : type == "Strip" ? 3 : -1;
    if (next < 0) unsupported("decoder", concat("'", type, "'"));
    if (next < stage || (next == stage && next > 0)) unsupported("decoder", concat("'", type, "' at this place of the chain"));
    if (next == 0) out.replacements.emplace_back(fixed_pattern(step, "decoder"), short_text(step.at("content"), "Replace"));
    if (next == 1) out.byte_fallback = true;
    if (next == 3) {
      if (stage != 2 || step.value("stop", 0) != 0) unsupported("decoder", "Strip of this kind");
      out.strip = step.at("content");
      out.n_strip = step.value("start", 0u);
      if (out.strip.empty() && out.n_strip > 0) unsupported("decoder", "Strip of nothing");
    }
    stage = next;
  }
  return out;
}

}  // namespace lockstep
