#include "text/marked_text.h"

#include "base/utf8.h"

#include <algorithm>
#include <cstring>

namespace lockstep {

void MarkedText::append(std::string_view text, bool trusted) {
  if (text.empty()) return;
  bytes.append(text);
  if (!runs.empty() && runs.back().trusted == trusted) {
    runs.back().end = bytes.size();
  } else {
    runs.push_back({bytes.size(), trusted});
  }
}

void MarkedText::append(const MarkedText& other, size_t from, size_t to) {
  to = std::min(to, other.bytes.size());
  if (from >= to) return;
  const std::string_view view = other.bytes;
  auto run = std::upper_bound(other.runs.begin(), other.runs.end(), from, [](size_t at, const Run& r) { return at < r.end; });
  for (; from < to; ++run) {
    const size_t end = std::min(run->end, to);
    append(view.substr(from, end - from), run->trusted);
    from = end;
  }
}

MarkedText MarkedText::slice(size_t from, size_t to) const {
  MarkedText part;
  part.html_safe = html_safe;
  part.append(*this, from, to);
  return part;
}

bool MarkedText::trusted_at(size_t byte) const {
  const auto run = std::upper_bound(runs.begin(), runs.end(), byte, [](size_t at, const Run& r) { return at < r.end; });
  return run == runs.end() || run->trusted;
}

size_t find_bytes(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  const void* hit = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  return hit == nullptr ? std::string_view::npos : static_cast<size_t>(static_cast<const char*>(hit) - text.data());
}

size_t rfind_bytes(std::string_view text, std::string_view needle) {
  if (needle.empty()) return text.size();
  // memmem is linear in the worst case, std::string::rfind is not: search the mirror image.
  const std::string mirrored_text(text.rbegin(), text.rend());
  const std::string mirrored_needle(needle.rbegin(), needle.rend());
  const size_t at = find_bytes(mirrored_text, mirrored_needle);
  return at == std::string_view::npos ? at : text.size() - needle.size() - at;
}

bool is_python_space(uint32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

size_t previous_code_point(std::string_view text, size_t end) {
  size_t at = end - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

namespace {

template <class Strippable>
std::pair<size_t, size_t> bounds(std::string_view text, bool left, bool right, const Strippable& strippable) {
  size_t from = 0, to = text.size();
  while (left && from < to) {
    const CodePoint c = decode_utf8(text, from);
    if (!strippable(c.value)) break;
    from += c.length;
  }
  while (right && to > from) {
    const size_t at = previous_code_point(text, to);
    if (!strippable(decode_utf8(text, at).value)) break;
    to = at;
  }
  return {from, to};
}

}  // namespace

std::pair<size_t, size_t> strip_bounds(std::string_view text, bool left, bool right) {
  return bounds(text, left, right, is_python_space);
}

std::pair<size_t, size_t> strip_bounds(std::string_view text, bool left, bool right, std::string_view characters) {
  std::vector<uint32_t> set;
  for (size_t at = 0; at < characters.size();) {
    const CodePoint c = decode_utf8(characters, at);
    set.push_back(c.value);
    at += c.length;
  }
  std::sort(set.begin(), set.end());
  return bounds(text, left, right, [&](uint32_t c) { return std::binary_search(set.begin(), set.end(), c); });
}

size_t byte_offset(std::string_view text, size_t n_code_points) {
  size_t at = 0;
  for (; n_code_points > 0 && at < text.size(); --n_code_points) {
    ++at;
    while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
  }
  return at;
}

}  // namespace lockstep
