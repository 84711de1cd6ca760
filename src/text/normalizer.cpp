#include "text/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "text/unicode_classes.h"

namespace lockstep {
namespace {

using Kind = NormalizeStep::Kind;

constexpr size_t kMaxGrowth = 32, kMaxExtraBytes = 4096;  // U+FDFA grows 13-fold on its way through NFKC and U+2581

constexpr std::pair<uint32_t, uint32_t> kNormalRanges[] = {
#include "text/normal_form_ranges.inc"
};

// Whether a normal form may change the character or join it with another, in the Unicode version of Hugging Face's tables;
// utf8proc's are newer.
bool is_touched(uint32_t code_point) {
  constexpr uint32_t kEnd = 0x30000;
  static const std::vector<bool> touched = [] {
    std::vector<bool> all(kEnd);
    for (const auto& [first, last] : kNormalRanges) std::fill(all.begin() + first, all.begin() + last + 1, true);
    return all;
  }();
  return code_point < kEnd && touched[code_point];
}

// What came from several bytes is trusted if all of them were.
char all_trusted(std::string_view trusted) {
  return std::all_of(trusted.begin(), trusted.end(), [](char t) { return t != 0; }) ? 1 : 0;
}

class NormalForm {
 public:
  explicit NormalForm(Kind kind) {
    const bool compose = kind == Kind::nfc || kind == Kind::nfkc;
    const bool compatible = kind == Kind::nfkc || kind == Kind::nfkd;
    options_ = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                                              (compatible ? UTF8PROC_COMPAT : 0));
  }

  void append(std::string_view text, std::string& out) {
    code_points_.clear();
    for (size_t at = 0; at < text.size();) {
      const Char c = char_at(text, at);
      decompose(c.value);
      at = c.next;
    }
    order_marks();
    const auto n = utf8proc_normalize_utf32(code_points_.data(), static_cast<utf8proc_ssize_t>(code_points_.size()), options_);
    check(n >= 0, "utf8proc: ", utf8proc_errmsg(n));
    for (const utf8proc_int32_t c : std::span(code_points_).first(static_cast<size_t>(n)))
      append_utf8(out, static_cast<uint32_t>(c));
  }

 private:
  void decompose(uint32_t code_point) {
    constexpr size_t kLongest = 32;  // the longest decomposition, of U+FDFA, has 18
    const size_t size = code_points_.size();
    code_points_.resize(size + kLongest);
    int boundary = 0;
    const auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code_point), code_points_.data() + size, kLongest,
                                           static_cast<utf8proc_option_t>(options_ | UTF8PROC_DECOMPOSE), &boundary);
    check(n >= 0 && n <= static_cast<utf8proc_ssize_t>(kLongest), "utf8proc: ", utf8proc_errmsg(n));
    code_points_.resize(size + static_cast<size_t>(n));
  }
  // Canonical order: marks by class, those of one class in the order they came. A sort, since a text may have a million.
  void order_marks() {
    const auto mark_class = [](utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; };
    for (auto begin = code_points_.begin(); begin != code_points_.end();) {
      if (mark_class(*begin) == 0) {
        ++begin;
        continue;
      }
      const auto end = std::find_if(begin, code_points_.end(), [&](auto c) { return mark_class(c) == 0; });
      std::stable_sort(begin, end, [&](auto a, auto b) { return mark_class(a) < mark_class(b); });
      begin = end;
    }
  }

  utf8proc_option_t options_;
  std::vector<utf8proc_int32_t> code_points_;
};

// Only stretches of touched characters are looked at: ASCII joins only with marks after it, so that of ASCII the one
// character before a stretch goes with it; all others stand for themselves.
void normalize(Kind kind, NormalText& text) {
  NormalForm form(kind);
  NormalText out;
  const std::string_view in = text.text;
  size_t done = 0;
  const auto copy_to = [&](size_t end) {
    out.text.append(in, done, end - done);
    if (!text.trusted.empty()) out.trusted.append(text.trusted, done, end - done);
    done = end;
  };
  const auto touched_end = [&](size_t at) {
    while (at < in.size()) {
      const Char c = char_at(in, at);
      if (c.value < 0x80 || !is_touched(c.value)) break;
      at = c.next;
    }
    return at;
  };
  for (size_t at = 0; at < in.size();) {
    const size_t end = touched_end(at);
    if (end == at) {
      at = char_at(in, at).next;
      continue;
    }
    const size_t begin = at > done && static_cast<unsigned char>(in[at - 1]) < 0x80 ? at - 1 : at;
    copy_to(begin);
    form.append(in.substr(begin, end - begin), out.text);
    if (!text.trusted.empty())
      out.trusted.resize(out.text.size(), all_trusted(std::string_view(text.trusted).substr(begin, end - begin)));
    at = done = end;
  }
  copy_to(in.size());
  text = std::move(out);
}

void check_growth(size_t n_bytes, size_t limit) {
  if (n_bytes > limit)
    fail(ExitCode::unreadable, "tokenizer: the normalizer makes more than ", kMaxGrowth, " bytes of each of a text");
}

void replace(const NormalizeStep& step, size_t limit, NormalText& text) {
  NormalText out;
  size_t done = 0;
  const auto copy_to = [&](size_t end) {
    out.text.append(text.text, done, end - done);
    if (!text.trusted.empty()) out.trusted.append(text.trusted, done, end - done);
  };
  for (size_t at = text.text.find(step.text); at != std::string::npos; at = text.text.find(step.text, done)) {
    copy_to(at);
    out.text += step.replacement;
    if (!text.trusted.empty())
      out.trusted.resize(out.text.size(), all_trusted(std::string_view(text.trusted).substr(at, step.text.size())));
    done = at + step.text.size();
    check_growth(out.text.size(), limit);
  }
  copy_to(text.text.size());
  text = std::move(out);
}

void strip(const NormalizeStep& step, NormalText& text) {
  const auto is_space = [&](size_t at) { return (unicode_classes().of(char_at(text.text, at).value) & kSpace) != 0; };
  size_t begin = 0, end = text.text.size();
  while (step.strip_left && begin < end && is_space(begin)) begin = char_at(text.text, begin).next;
  while (step.strip_right && end > begin && is_space(char_before(text.text, end))) end = char_before(text.text, end);
  text.text = text.text.substr(begin, end - begin);
  if (!text.trusted.empty()) text.trusted = text.trusted.substr(begin, end - begin);
}

}  // namespace

void Normalizer::apply(NormalText& text) const {
  const size_t limit = kMaxExtraBytes + kMaxGrowth * text.text.size();
  for (const NormalizeStep& step : steps_) {
    if (text.text.empty()) return;
    check_growth(text.text.size(), limit);
    switch (step.kind) {
      case Kind::prepend:
        if (!text.trusted.empty()) text.trusted.insert(0, step.text.size(), text.trusted[0]);
        text.text.insert(0, step.text);
        break;
      case Kind::replace:
        replace(step, limit, text);
        break;
      case Kind::strip:
        strip(step, text);
        break;
      default:
        normalize(step.kind, text);
    }
  }
}

std::string Normalizer::apply(std::string_view text) const {
  NormalText normal{std::string(text), {}};
  apply(normal);
  return std::move(normal.text);
}

}  // namespace lockstep
