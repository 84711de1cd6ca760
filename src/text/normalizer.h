// What is done to a text before it is split: Unicode normal forms, replacements, a prefix. Carries along which bytes are
// trusted (text_piece.h), so that special tokens can still be told from content afterwards.
//   Normalizer n({{.kind = NormalizeStep::Kind::prepend, .text = "\u2581"}});   n.apply(segment);
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct NormalizeStep {
  enum class Kind { nfc, nfd, nfkc, nfkd, prepend, replace, strip };
  Kind kind = Kind::nfc;
  std::string text{};         // prepend: put before a text that isn't empty; replace: looked for (not empty)
  std::string replacement{};  // replace
  bool strip_left = false, strip_right = false;
};

struct NormalText {
  std::string text;
  std::string trusted;  // a byte for each of `text`: 0 or 1; empty: nobody asks
};

class Normalizer {
 public:
  Normalizer() = default;
  explicit Normalizer(std::vector<NormalizeStep> steps) : steps_(std::move(steps)) {}

  bool empty() const { return steps_.empty(); }
  void apply(NormalText& text) const;  // valid UTF-8, linear; throws Error (unreadable) where it grows absurdly
  std::string apply(std::string_view text) const;

 private:
  std::vector<NormalizeStep> steps_;
};

}  // namespace lockstep
