#include "text/pretokenize.h"

#include "base/error.h"

namespace lockstep {

using Kind = PretokenizeStep::Kind;

Pretokenizer::Pretokenizer(std::vector<PretokenizeStep> steps) : steps_(std::move(steps)) {
  for (const PretokenizeStep& step : steps_) {
    if (is_byte_level_ && (step.kind == Kind::byte_level || step.kind == Kind::metaspace))
      fail(ExitCode::unreadable, "tokenizer: a pre_tokenizer ByteLevel or Metaspace after a ByteLevel isn't supported");
    is_byte_level_ |= step.kind == Kind::byte_level;
  }
}

// Words hold raw bytes after a byte-level step as well as before it: only further steps need its characters, so that they
// are written out there and taken back at the end.
void Pretokenizer::split(std::string text, bool at_start, PatternBudget& budget, Words& words) const {
  words.text = std::move(text);
  words.spans.clear();
  if (words.text.empty()) return;
  words.spans.push_back({0, words.text.size()});
  static const PretokenizeStep kGpt2{.kind = Kind::pattern, .known = &known_pattern("gpt2")};
  for (size_t i = 0; i < steps_.size(); ++i) {
    const PretokenizeStep& step = steps_[i];
    switch (step.kind) {
      case Kind::byte_level:
        if (step.prefix == PretokenizeStep::Prefix::always) put_space_before_words(words);
        if (step.uses_regex) split_by_pattern(kGpt2, words.text, budget, words.spans);
        if (i + 1 < steps_.size()) bytes_to_level_text(words);
        break;
      case Kind::pattern:
        split_by_pattern(step, words.text, budget, words.spans);
        break;
      case Kind::characters:
        split_by_characters(step, words.text, words.spans);
        break;
      case Kind::metaspace:
        split_by_metaspace(step, at_start, words);
        break;
    }
  }
  if (is_byte_level_ && steps_.back().kind != Kind::byte_level) level_text_to_bytes(words);
}

}  // namespace lockstep
