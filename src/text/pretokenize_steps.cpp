// The steps of pre-tokenization one by one.
#include <algorithm>

#include "base/error.h"
#include "text/byte_level.h"
#include "text/pretokenize.h"

namespace lockstep {
namespace {

// Collects what a step finds in one word, in order: matches, and what lies between them.
class Splitter {
 public:
  Splitter(SplitBehavior behavior, bool invert, std::vector<Span>& out) : behavior_(behavior), invert_(invert), out_(out) {}

  void begin_word(Span word) {
    at_ = word.begin;
    end_ = word.end;
    first_ = out_.size();
    previous_match_ = false;
  }
  void match(size_t begin, size_t end) {
    if (begin > at_) part({at_, begin}, invert_);
    part({begin, end}, !invert_);
    at_ = end;
  }
  void end_word() {
    if (at_ < end_) part({at_, end_}, invert_);
    if (behavior_ == SplitBehavior::merged_with_next) merge_with_next();
  }

 private:
  void part(Span span, bool is_match) {
    const bool has_previous = out_.size() > first_;
    switch (behavior_) {
      case SplitBehavior::isolated:
        if (span.begin < span.end) out_.push_back(span);
        break;
      case SplitBehavior::removed:
        if (!is_match && span.begin < span.end) out_.push_back(span);
        break;
      case SplitBehavior::contiguous:
        if (is_match == previous_match_ && has_previous) {
          out_.back().end = span.end;
        } else if (span.begin < span.end) {
          out_.push_back(span);
        }
        break;
      case SplitBehavior::merged_with_previous:
        if (is_match && !previous_match_ && has_previous) {
          out_.back().end = span.end;
        } else if (span.begin < span.end) {
          out_.push_back(span);
        }
        break;
      case SplitBehavior::merged_with_next:
        pending_.push_back({span, is_match});
        break;
    }
    previous_match_ = is_match;
  }
  // From the back: a match joins what follows it, unless that is a match.
  void merge_with_next() {
    const size_t first = out_.size();
    bool after_is_match = false;
    for (size_t i = pending_.size(); i-- > 0;) {
      const auto& [span, is_match] = pending_[i];
      if (is_match && !after_is_match && out_.size() > first) {
        out_.back().begin = span.begin;
      } else if (span.begin < span.end) {
        out_.push_back(span);
      }
      after_is_match = is_match;
    }
    std::reverse(out_.begin() + static_cast<ptrdiff_t>(first), out_.end());
    pending_.clear();
  }

  struct Part {
    Span span;
    bool is_match;
  };
  SplitBehavior behavior_;
  bool invert_;
  std::vector<Span>& out_;
  std::vector<Part> pending_;
  size_t at_ = 0, end_ = 0, first_ = 0;
  bool previous_match_ = false;
};

}  // namespace

void split_by_pattern(const PretokenizeStep& step, std::string_view text, PatternBudget& budget, std::vector<Span>& spans) {
  std::vector<Span> out;
  Splitter splitter(step.behavior, step.invert, out);
  for (const Span word : spans) {
    const std::string_view inside = text.substr(word.begin, word.end - word.begin);
    splitter.begin_word(word);
    if (step.known != nullptr) {
      for (size_t at = 0; at < inside.size();) {
        const size_t end = step.known->match(step.known->options, inside, at);
        splitter.match(word.begin + at, word.begin + end);
        at = end;
      }
    } else if (step.pattern != nullptr) {
      step.pattern->for_each_match(inside, budget,
                                   [&](size_t begin, size_t end) { splitter.match(word.begin + begin, word.begin + end); });
    } else {
      for (size_t at = inside.find(step.text); at < inside.size(); at = inside.find(step.text, at + step.text.size()))
        splitter.match(word.begin + at, word.begin + at + step.text.size());
    }
    splitter.end_word();
  }
  spans = std::move(out);
}

void split_by_characters(const PretokenizeStep& step, std::string_view text, std::vector<Span>& spans) {
  std::vector<Span> out;
  Splitter splitter(step.behavior, step.invert, out);
  for (const Span word : spans) {
    splitter.begin_word(word);
    for (size_t at = word.begin; at < word.end;) {
      const Char c = char_at(text, at);
      if (unicode_classes().of(c.value) & step.classes) splitter.match(at, c.next);
      at = c.next;
    }
    splitter.end_word();
  }
  spans = std::move(out);
}

void split_by_metaspace(const PretokenizeStep& step, bool at_start, Words& words) {
  Words out;
  Splitter splitter(SplitBehavior::merged_with_next, false, out.spans);
  for (const Span word : words.spans) {
    const std::string_view inside = std::string_view(words.text).substr(word.begin, word.end - word.begin);
    const size_t begin = out.text.size();
    const bool may_prefix = step.prefix == PretokenizeStep::Prefix::always ||
                            (step.prefix == PretokenizeStep::Prefix::first && at_start && word.begin == 0);
    if (may_prefix && !inside.starts_with(' ') && !inside.starts_with(step.text)) out.text += step.text;
    for (const char c : inside) {
      if (c == ' ') {
        out.text += step.text;
      } else {
        out.text += c;
      }
    }
    if (!step.splits) {
      out.spans.push_back({begin, out.text.size()});
      continue;
    }
    splitter.begin_word({begin, out.text.size()});
    for (size_t at = out.text.find(step.text, begin); at != std::string::npos;
         at = out.text.find(step.text, at + step.text.size()))
      splitter.match(at, at + step.text.size());
    splitter.end_word();
  }
  words = std::move(out);
}

void put_space_before_words(Words& words) {
  Words out;
  for (const Span word : words.spans) {
    const size_t begin = out.text.size();
    if (words.text[word.begin] != ' ') out.text += ' ';
    out.text.append(words.text, word.begin, word.end - word.begin);
    out.spans.push_back({begin, out.text.size()});
  }
  words = std::move(out);
}

void bytes_to_level_text(Words& words) {
  Words out;
  for (const Span word : words.spans) {
    const size_t begin = out.text.size();
    out.text += level_text_of_bytes(std::string_view(words.text).substr(word.begin, word.end - word.begin));
    out.spans.push_back({begin, out.text.size()});
  }
  words = std::move(out);
}

void level_text_to_bytes(Words& words) {
  Words out;
  for (const Span word : words.spans) {
    const size_t begin = out.text.size();
    const auto bytes = bytes_of_level_text(std::string_view(words.text).substr(word.begin, word.end - word.begin));
    check(bytes.has_value(), "pre-tokenizer: a character that stands for no byte");
    out.text += *bytes;
    out.spans.push_back({begin, out.text.size()});
  }
  words = std::move(out);
}

}  // namespace lockstep
