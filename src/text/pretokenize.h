// Pre-tokenization: a stretch of normalised text to words, which byte-pair encoding then treats one by one. A chain of
// the steps that tokenizer files name; works on UTF-8 text, and byte-level steps turn that into bytes (text/byte_level.h).
//   Pretokenizer p({gpt2_byte_level}); p.split(" a b", true, budget, w);   w.spans: [0, 2) [2, 4)
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/known_patterns.h"
#include "text/pattern.h"

namespace lockstep {

struct Span {
  size_t begin, end;
  bool operator==(const Span&) const = default;
};

enum class SplitBehavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };

struct PretokenizeStep {
  enum class Kind {
    byte_level,  // splits by the GPT-2 pattern if `uses_regex`; then words are bytes
    pattern,     // splits by `known`, `pattern` or, if both are null, the literal `text`
    characters,  // splits at characters of `classes`
    metaspace,   // ' ' becomes `text`; a word per `text` if `splits`
  };
  enum class Prefix { never, first, always };

  Kind kind = Kind::byte_level;
  Prefix prefix = Prefix::never;  // byte_level: a space before each word that begins with none; metaspace: `text` likewise
  bool uses_regex = true;
  const KnownPattern* known = nullptr;
  std::shared_ptr<const Pattern> pattern{};
  std::string text{};
  ClassMask classes = 0;
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;  // what the pattern leaves is what matches
  bool splits = true;
};

struct Words {
  std::string text;         // bytes where a step is byte_level, else UTF-8
  std::vector<Span> spans;  // the words, in order, none empty
};

class Pretokenizer {
 public:
  Pretokenizer() = default;
  explicit Pretokenizer(std::vector<PretokenizeStep> steps);  // throws Error (unreadable) on a chain that isn't supported

  // `at_start`: the text begins where the whole input does. Throws Error (unreadable) where a pattern goes over the budget,
  // which is that of the whole input.
  void split(std::string text, bool at_start, PatternBudget& budget, Words& words) const;

  bool is_byte_level() const { return is_byte_level_; }  // has a byte_level step

 private:
  bool is_byte_level_ = false;
  std::vector<PretokenizeStep> steps_;
};

// Of pretokenize_steps.cpp.
void split_by_pattern(const PretokenizeStep& step, std::string_view text, PatternBudget& budget, std::vector<Span>& spans);
void split_by_characters(const PretokenizeStep& step, std::string_view text, std::vector<Span>& spans);
void split_by_metaspace(const PretokenizeStep& step, bool at_start, Words& words);
void put_space_before_words(Words& words);
void bytes_to_level_text(Words& words);
void level_text_to_bytes(Words& words);

}  // namespace lockstep
