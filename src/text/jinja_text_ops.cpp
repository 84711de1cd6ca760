#include "text/jinja_text_ops.h"

#include "base/error.h"
#include "base/utf8.h"
#include "text/jinja_ops.h"

#include <algorithm>

namespace lockstep::jinja {

const MarkedText& text_argument(const Value& value, std::string_view function) {
  check_defined(value);
  if (value.text() == nullptr) raise(function, "() wants a string, not ", type_name(value));
  return *value.text();
}

int64_t integer_argument(const Value& value, std::string_view function) {
  check_defined(value);
  if (!is_integral(value)) raise(function, "() wants an integer, not ", type_name(value));
  return as_integer(value);
}

namespace {

size_t skip_spaces(std::string_view text, size_t at, bool spaces) {
  while (at < text.size()) {
    const CodePoint c = decode_utf8(text, at);
    if (is_python_space(c.value) != spaces) break;
    at += c.length;
  }
  return at;
}

size_t skip_spaces_left(std::string_view text, size_t at, bool spaces) {
  while (at > 0) {
    const size_t before = previous_code_point(text, at);
    if (is_python_space(decode_utf8(text, before).value) != spaces) break;
    at = before;
  }
  return at;
}

void check_separator(std::optional<std::string_view> separator) {
  if (separator && separator->empty()) raise("empty separator");
}

}  // namespace

std::vector<Value> split(const MarkedText& text, std::optional<std::string_view> separator, int64_t n_splits, Budget& budget) {
  check_separator(separator);
  budget.spend_text(text.bytes.size() + text.runs.size() * sizeof(MarkedText::Run));
  const std::string_view bytes = text.bytes;
  std::vector<Value> parts;
  const auto add = [&](size_t from, size_t to) {
    budget.spend(1);
    parts.emplace_back(text.slice(from, to));
  };
  const auto may_split = [&] { return n_splits < 0 || parts.size() < static_cast<size_t>(n_splits); };
  size_t at = 0;
  if (separator) {
    while (may_split()) {
      const size_t hit = find_bytes(bytes, *separator, at);
      if (hit == std::string_view::npos) break;
      add(at, hit);
      at = hit + separator->size();
    }
    add(at, bytes.size());
    return parts;
  }
  budget.spend_text(kCharacterCost * bytes.size());
  while ((at = skip_spaces(bytes, at, true)) < bytes.size()) {
    if (!may_split()) {
      add(at, bytes.size());
      break;
    }
    const size_t end = skip_spaces(bytes, at, false);
    add(at, end);
    at = end;
  }
  return parts;
}

std::vector<Value> split_from_right(const MarkedText& text, std::optional<std::string_view> separator, int64_t n_splits,
                                    Budget& budget) {
  if (n_splits < 0) return split(text, separator, n_splits, budget);
  check_separator(separator);
  budget.spend_text(text.bytes.size() + text.runs.size() * sizeof(MarkedText::Run));
  const std::string_view bytes = text.bytes;
  std::vector<Value> parts;
  const auto add = [&](size_t from, size_t to) {
    budget.spend(1);
    parts.emplace_back(text.slice(from, to));
  };
  size_t end = bytes.size();
  if (separator) {
    while (parts.size() < static_cast<size_t>(n_splits)) {
      budget.spend_text(kMirrorCost * end);
      const size_t hit = rfind_bytes(bytes.substr(0, end), *separator);
      if (hit == std::string_view::npos) break;
      add(hit + separator->size(), end);
      end = hit;
    }
    add(0, end);
  } else {
    budget.spend_text(kCharacterCost * bytes.size());
    while ((end = skip_spaces_left(bytes, end, true)) > 0) {
      if (parts.size() >= static_cast<size_t>(n_splits)) {
        add(0, end);
        break;
      }
      const size_t start = skip_spaces_left(bytes, end, false);
      add(start, end);
      end = start;
    }
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<Value> split_lines(const MarkedText& text, bool keep_ends, Budget& budget) {
  budget.spend_text(kCharacterCost * text.bytes.size());
  const std::string_view bytes = text.bytes;
  std::vector<Value> lines;
  size_t start = 0;
  for (size_t at = 0; at < bytes.size();) {
    const CodePoint c = decode_utf8(bytes, at);
    size_t next = at + c.length;
    const bool ends = (c.value >= 0x0A && c.value <= 0x0D) || (c.value >= 0x1C && c.value <= 0x1E) || c.value == 0x85 ||
                      c.value == 0x2028 || c.value == 0x2029;
    if (ends) {
      if (c.value == '\r' && next < bytes.size() && bytes[next] == '\n') ++next;
      budget.spend(1);
      lines.emplace_back(text.slice(start, keep_ends ? next : at));
      start = next;
    }
    at = next;
  }
  if (start < bytes.size()) lines.emplace_back(text.slice(start, bytes.size()));
  return lines;
}

MarkedText replace(const MarkedText& text, std::string_view old_text, const MarkedText& new_text, int64_t count,
                   Budget& budget) {
  budget.spend_text(text.bytes.size() + text.runs.size() * sizeof(MarkedText::Run));
  const std::string_view bytes = text.bytes;
  MarkedText out;
  size_t at = 0;
  for (int64_t n = 0; count < 0 || n < count; ++n) {
    size_t hit = find_bytes(bytes, old_text, at);
    if (old_text.empty() && n > 0) {  // between all code points
      if (at >= bytes.size()) break;
      hit = at + decode_utf8(bytes, at).length;
    }
    if (hit == std::string_view::npos) break;
    out.append(text, at, hit);
    out.append(new_text);
    budget.spend_text(kPieceCost + new_text.bytes.size() + new_text.runs.size() * sizeof(MarkedText::Run));
    check_length(out);
    at = hit + old_text.size();
  }
  out.append(text, at, bytes.size());
  return out;
}

MarkedText strip(const MarkedText& text, bool left, bool right, const MarkedText* characters, Budget& budget) {
  budget.spend_text(text.bytes.size() + (characters == nullptr ? 0 : 8 * characters->bytes.size()));
  const auto [from, to] =
      characters == nullptr ? strip_bounds(text.bytes, left, right) : strip_bounds(text.bytes, left, right, characters->bytes);
  budget.spend_text(kCharacterCost * (text.bytes.size() - (to - from)));
  return text.slice(from, to);
}

MarkedText escape_html(const MarkedText& text, Budget& budget) {
  budget.spend_text(kCharacterCost * text.bytes.size());
  MarkedText out;
  out.html_safe = true;
  size_t at = 0;
  for (const MarkedText::Run& run : text.runs) {
    for (; at < run.end; ++at) {
      const char c = text.bytes[at];
      const std::string_view entity = c == '&'    ? "&amp;"
                                      : c == '<'  ? "&lt;"
                                      : c == '>'  ? "&gt;"
                                      : c == '\'' ? "&#39;"
                                      : c == '"'  ? "&#34;"
                                                  : std::string_view(&c, 1);
      out.append(entity, run.trusted);
    }
  }
  return out;
}

MarkedText pad(const MarkedText& text, int64_t width, bool left, bool right, const MarkedText& fill, Budget& budget) {
  if (count_code_points(fill.bytes) != 1) raise("The fill character must be exactly one character long");
  const auto n = static_cast<int64_t>(count_code_points(text.bytes));
  if (width <= n) return text;
  if (width > static_cast<int64_t>(kMaxTextBytes)) raise("a string grows over ", kMaxTextBytes, " bytes");
  const int64_t missing = width - n;
  int64_t before = left ? missing : 0;
  if (left && right) before = missing / 2 + (missing & width & 1);  // as str.center rounds
  budget.spend_text(kCharacterCost * static_cast<size_t>(missing) + static_cast<size_t>(missing) * fill.bytes.size());
  MarkedText out;
  for (int64_t i = 0; i < before; ++i) out.append(fill);
  out.append(text);
  for (int64_t i = before; i < missing; ++i) out.append(fill);
  return out;
}

}  // namespace lockstep::jinja
