// UTF-8 text that remembers, for each byte, whether the template wrote it (trusted) or the request did. Every string of
// the template language is one; all operations are built from append and slice, so no operation can lose a mark.
// Not for display or tokens.
//   MarkedText t("<|user|>", true); t.append("hi", false); t.slice(8, 10).all_trusted() == false
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

struct MarkedText {
  struct Run {
    size_t end;  // bytes [previous end, end)
    bool trusted;
    bool operator==(const Run&) const = default;
  };
  std::string bytes;
  bool html_safe = false;  // from |safe or |escape: `+` escapes what is joined to it
  std::vector<Run> runs;   // neighbours differ; the last end is bytes.size(); none where bytes is empty

  MarkedText() = default;
  MarkedText(std::string_view text, bool trusted) { append(text, trusted); }

  void append(std::string_view text, bool trusted);
  void append(const MarkedText& other) { append(other, 0, other.bytes.size()); }
  void append(const MarkedText& other, size_t from, size_t to);
  MarkedText slice(size_t from, size_t to) const;

  bool all_trusted() const { return runs.empty() || (runs.size() == 1 && runs[0].trusted); }
  bool trusted_at(size_t byte) const;
};

// Linear in the sizes, whatever the bytes; npos where absent. An empty needle is found at `from` (at the end by rfind).
size_t find_bytes(std::string_view text, std::string_view needle, size_t from = 0);
size_t rfind_bytes(std::string_view text, std::string_view needle);

// The white space that Python's str.strip, str.split and regular expressions know.
bool is_python_space(uint32_t code_point);

// Byte bounds of `text` without white space (or without the code points of `characters`) at its ends.
std::pair<size_t, size_t> strip_bounds(std::string_view text, bool left, bool right);
std::pair<size_t, size_t> strip_bounds(std::string_view text, bool left, bool right, std::string_view characters);

// Byte offset of the n-th code point; text.size() where there are fewer.
size_t byte_offset(std::string_view text, size_t n_code_points);

// Start of the code point that ends before `end` (> 0).
size_t previous_code_point(std::string_view text, size_t end);

}  // namespace lockstep
