// One line of JSON, read strictly (RFC 8259) into a flat list of nodes that point into the text. Input files are untrusted:
// duplicate keys, NaN, lone surrogates, bad UTF-8, nesting deeper than 64 and numbers that no 64-bit type holds are faults
// that name the byte column. No recursion; nothing is copied, so raw text (chat messages, tools) can be passed on as it is.
// Not a general JSON library: configurations are read with nlohmann.
//   JsonLine json; if (auto fault = json.parse(text)) return *fault; if (auto id = json.find(json.root(), "id")) ...
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace lockstep {

inline constexpr size_t kMaxLineBytes = size_t{16} << 20;
inline constexpr int kMaxJsonDepth = 64;

enum class JsonKind : uint8_t { null, boolean, number, string, array, object };

using NodeId = uint32_t;

class JsonLine {
 public:
  // The text must outlive the reads below. Faults: "invalid_json" with the column, "line_too_long". Memory of earlier lines
  // is used again.
  std::optional<Fault> parse(std::string_view text);

  NodeId root() const { return 0; }
  JsonKind kind(NodeId n) const { return nodes_[n].kind; }
  std::string_view raw(NodeId n) const { return text_.substr(nodes_[n].begin, nodes_[n].end - nodes_[n].begin); }
  size_t offset(NodeId n) const { return nodes_[n].begin; }

  // Children of an array: for (n = first(array); n < after(array); n = after(n)).
  // Of an object: keys at n, values at n + 1: for (key = first(object); key < after(object); key = after(key + 1)).
  NodeId first(NodeId container) const { return container + 1; }
  NodeId after(NodeId n) const { return nodes_[n].next; }

  std::optional<NodeId> find(NodeId object, std::string_view key) const;  // the value; nullopt also where it is null
  bool equals(NodeId string, std::string_view text) const;
  std::string string(NodeId string) const;
  bool boolean(NodeId boolean) const { return text_[nodes_[boolean].begin] == 't'; }
  double number(NodeId number) const;
  std::optional<int64_t> integer(NodeId number) const;  // 8 and 8.0; nullopt: not integral, or not in 64 bits

 private:
  struct Node {
    uint32_t begin, end;  // of the text; a string's quotes included
    NodeId next;          // the node after this one and all in it
    JsonKind kind;
    bool escaped;  // a string with a backslash
  };

  bool parse_value();  // false: fault_ is set
  bool parse_key();
  bool parse_string();
  bool parse_escape();
  bool parse_number();
  bool parse_literal();
  bool open(JsonKind kind);
  bool close();
  bool check_keys(NodeId object);
  void skip_space();
  bool refuse(size_t at, std::string what);
  bool refuse_here(std::string_view expected);
  NodeId add(size_t begin, JsonKind kind, bool escaped = false);
  std::string_view decoded(NodeId string);

  std::string_view text_;
  size_t at_ = 0;
  std::vector<Node> nodes_;
  std::vector<NodeId> open_;  // containers around at_, outermost first
  std::vector<std::pair<std::string_view, NodeId>> keys_;
  std::deque<std::string> decoded_keys_;
  std::optional<Fault> fault_;
};

// A value for a message: its JSON text, cut at about 60 bytes.
std::string shown(std::string_view raw);

}  // namespace lockstep
