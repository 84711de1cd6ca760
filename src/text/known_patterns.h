// The split patterns of the common model families as straight code, chosen by the exact text of the regular expression.
// Each covers every character, so that its matches are the words. Same result as pattern.h, many times as fast.
//   const KnownPattern* p = find_known_pattern(regex);   size_t end = p->match(p->options, text, begin);
#pragma once

#include <cstddef>
#include <string_view>

#include "text/unicode_classes.h"

namespace lockstep {

struct KnownOptions {
  ClassMask letters = kLetter;      // what a word is made of
  int max_digits = 3;               // of one number
  bool contractions = true;         // 's, 're, .. stay with the word (by case) or stand alone
  bool slash_ends_symbols = false;  // a run of symbols takes '/' after it as it takes newlines
};

struct KnownPattern {
  const char* name;
  std::string_view regex;
  // End of the match that begins at `begin` (< text.size()); always greater than `begin`.
  size_t (*match)(const KnownOptions& options, std::string_view text, size_t begin);
  KnownOptions options;
};

const KnownPattern* find_known_pattern(std::string_view regex);  // nullptr if it is none of them
const KnownPattern& known_pattern(std::string_view name);        // gpt2, llama3, qwen2, qwen35, o200k, tekken

}  // namespace lockstep
