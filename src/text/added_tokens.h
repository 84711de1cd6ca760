// Added tokens: strings that are cut out of a text before all else, special ones among them. Finds them as Hugging Face
// does (leftmost, then longest; whole words and white space beside them by each token's flags), except where a special
// token's text is not trusted.
//   AddedTokens t(tokens, normalizer);   t.split(text, untrusted, false, segments);
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/normalizer.h"
#include "text/pretokenize.h"
#include "text/string_table.h"

namespace lockstep {

struct AddedToken {
  TokenId id = kNoToken;
  std::string content;
  bool special = false;
  bool single_word = false;  // not beside a letter or digit
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // and after it
  bool normalized = false;   // looked for after normalization, its content normalized too
  std::string pattern{};     // what is looked for; filled in by AddedTokens
};

struct Segment {
  TokenId token;  // kNoToken: plain text
  Span span;
};

class AddedTokens {
 public:
  AddedTokens() = default;
  AddedTokens(std::vector<AddedToken> tokens, const Normalizer& normalizer);  // throws Error (unreadable) on absurd tokens

  // `untrusted`: byte ranges, ascending, in which no special token is seen. `normalized`: which of the two kinds to find.
  void split(std::string_view text, std::span<const Span> untrusted, bool normalized, std::vector<Segment>& segments) const;

  std::span<const AddedToken> all() const { return tokens_; }
  bool any_normalized() const { return !after_.nodes.empty(); }

 private:
  struct Node {
    std::vector<std::pair<uint8_t, uint32_t>> next;  // byte -> node, ascending
    int32_t token = -1;                              // index in tokens_ of the string that ends here
  };
  struct Trie {
    std::vector<Node> nodes;  // empty: no tokens
    bool starts[256] = {};
    void add(std::string_view text, int32_t token);
    const Node* step(const Node& from, uint8_t byte) const;
  };

  std::vector<AddedToken> tokens_;
  Trie before_, after_;  // normalization
};

}  // namespace lockstep
