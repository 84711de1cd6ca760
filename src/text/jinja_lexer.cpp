#include "text/jinja_lexer.h"

#include "base/error.h"
#include "base/utf8.h"
#include "text/marked_text.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace lockstep::jinja {

namespace {

constexpr size_t kMaxNameBytes = 256;  // messages of undefined values hold them

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_name_part(char c) { return is_name_start(c) || is_digit(c); }

std::string unify_newlines(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      text += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      text += source[i];
    }
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : owned_(unify_newlines(source)), source_(owned_) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) lex_text();
    push(Token::Type::end);
    return std::move(tokens_);
  }

 private:
  using Type = Token::Type;

  bool ahead(std::string_view text) const { return source_.substr(at_, text.size()) == text; }

  void push(Type type, std::string text = {}) { tokens_.push_back({type, line_, std::move(text)}); }

  void advance(size_t to) {
    line_ += static_cast<int>(std::count(source_.begin() + at_, source_.begin() + to, '\n'));
    at_ = to;
  }

  size_t skip_space(size_t at) const {
    while (at < source_.size()) {
      const CodePoint c = decode_utf8(source_, at);
      if (!is_python_space(c.value)) break;
      at += c.length;
    }
    return at;
  }

  // Text up to the next tag, then the tag.
  void lex_text() {
    const auto is_tag = [&](size_t at) {
      const char kind = at + 1 < source_.size() ? source_[at + 1] : ' ';
      return kind == '%' || kind == '{' || kind == '#';
    };
    size_t tag = source_.find('{', at_);
    while (tag != std::string_view::npos && !is_tag(tag)) tag = source_.find('{', tag + 1);
    if (tag == std::string_view::npos) return emit_text(source_.size());

    const char kind = source_[tag + 1];
    char sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
    if (sign != '-' && sign != '+') sign = ' ';
    emit_text(tag, kind != '{', sign);
    const size_t inside = tag + 2 + (sign != ' ' ? 1 : 0);
    if (kind == '#') return lex_comment(inside);
    if (kind == '%' && lex_raw(inside)) return;
    advance(inside);
    push(kind == '%' ? Type::begin_block : Type::begin_output);
    lex_tag(kind == '%');
  }

  // The text before a tag. sign '-' takes its white space at the end; a block or comment alone at the start of its line
  // takes the blanks before it (lstrip_blocks).
  void emit_text(size_t end, bool strips_line = false, char sign = ' ') {
    std::string_view text = source_.substr(at_, end - at_);
    if (sign == '-') {
      text = text.substr(0, strip_bounds(text, false, true).second);
    } else if (sign == ' ' && strips_line) {
      const size_t newline = text.rfind('\n');
      const size_t start = newline == std::string_view::npos ? 0 : newline + 1;
      if (start > 0 || line_starts_) {
        const std::string_view blanks = text.substr(start);
        if (strip_bounds(blanks, true, false).first == blanks.size()) text = text.substr(0, start);
      }
    }
    if (!text.empty()) push(Type::text, std::string(text));
    advance(end);
  }

  // Steps over the end of a tag at `at` (its sign included) and the white space that it takes.
  void end_tag(size_t at, char sign, bool trims_newline) {
    if (sign == '-') {
      at = skip_space(at);
    } else if (sign == ' ' && trims_newline && at < source_.size() && source_[at] == '\n') {
      ++at;
    }
    advance(at);
    line_starts_ = at_ > 0 && source_[at_ - 1] == '\n';
  }

  void lex_comment(size_t inside) {
    const size_t close = source_.find("#}", inside);
    if (close == std::string_view::npos) fail_at_line(line_, "a comment that never ends");
    const char last = close > inside ? source_[close - 1] : ' ';
    end_tag(close + 2, last == '-' || last == '+' ? last : ' ', true);
  }

  bool lex_raw(size_t inside) {
    size_t at = skip_space(inside);
    if (source_.substr(at, 3) != "raw") return false;
    at = skip_space(at + 3);
    const bool strips = source_.substr(at, 3) == "-%}";
    if (!strips && source_.substr(at, 2) != "%}") return false;
    const int start_line = line_;
    end_tag(at + (strips ? 3 : 2), strips ? '-' : '+', false);
    for (size_t open = source_.find("{%", at_); open != std::string_view::npos; open = source_.find("{%", open + 2)) {
      size_t word = open + 2;
      char sign = word < source_.size() ? source_[word] : ' ';
      if (sign == '-' || sign == '+') {
        ++word;
      } else {
        sign = ' ';
      }
      word = skip_space(word);
      if (source_.substr(word, 6) != "endraw") continue;
      word = skip_space(word + 6);
      const char close_sign = word < source_.size() && (source_[word] == '-' || source_[word] == '+') ? source_[word] : ' ';
      if (close_sign != ' ') ++word;
      if (source_.substr(word, 2) != "%}") continue;
      emit_text(open, true, sign);
      end_tag(word + 2, close_sign, true);
      return true;
    }
    fail_at_line(start_line, "a raw block that never ends");
  }

  void lex_tag(bool is_block) {
    const std::string_view close = is_block ? "%}" : "}}";
    while (true) {
      advance(skip_space(at_));
      if (at_ >= source_.size()) fail_at_line(line_, "a tag that never ends, ", close, " expected");
      if (brackets_.empty()) {
        const char first = source_[at_];
        const bool has_sign = first == '-' || (first == '+' && is_block);
        if (source_.substr(at_ + (has_sign ? 1 : 0), 2) == close) {
          push(is_block ? Type::end_block : Type::end_output);
          return end_tag(at_ + (has_sign ? 3 : 2), has_sign ? first : ' ', is_block);
        }
      }
      lex_token();
    }
  }

  void lex_token() {
    const char c = source_[at_];
    if (is_digit(c)) return lex_number();
    if (is_name_start(c)) {
      size_t end = at_;
      while (end < source_.size() && is_name_part(source_[end])) ++end;
      if (end - at_ > kMaxNameBytes) fail_at_line(line_, "a name of more than ", kMaxNameBytes, " bytes");
      push(Type::name, std::string(source_.substr(at_, end - at_)));
      return advance(end);
    }
    if (c == '"' || c == '\'') return lex_string(c);
    static constexpr std::array<std::string_view, 6> kPairs = {"//", "**", "==", "!=", ">=", "<="};
    for (const auto pair : kPairs) {
      if (!ahead(pair)) continue;
      push(Type::symbol, std::string(pair));
      return advance(at_ + 2);
    }
    static constexpr std::string_view kSingles = "+-/*%~[](){}><=.:|,;";
    if (kSingles.find(c) == std::string_view::npos) {
      const CodePoint unknown = decode_utf8(source_, at_);
      fail_at_line(line_, "unexpected character '", source_.substr(at_, unknown.length), "'");
    }
    balance(c);
    push(Type::symbol, std::string(1, c));
    advance(at_ + 1);
  }

  void balance(char c) {
    if (c == '(') brackets_ += ')';
    if (c == '[') brackets_ += ']';
    if (c == '{') brackets_ += '}';
    if (c != ')' && c != ']' && c != '}') return;
    if (brackets_.empty()) fail_at_line(line_, "unexpected '", c, "'");
    if (brackets_.back() != c) fail_at_line(line_, "unexpected '", c, "', expected '", brackets_.back(), "'");
    brackets_.pop_back();
  }

  size_t digits(size_t at) const {
    while (at < source_.size() &&
           (is_digit(source_[at]) || (source_[at] == '_' && at + 1 < source_.size() && is_digit(source_[at + 1]))))
      ++at;
    return at;
  }

  void lex_number() {
    const char next = at_ + 1 < source_.size() ? source_[at_ + 1] : ' ';
    int base = 10;
    if (source_[at_] == '0') {
      base = next == 'x' || next == 'X' ? 16 : next == 'o' || next == 'O' ? 8 : next == 'b' || next == 'B' ? 2 : 10;
    }
    size_t end = base == 10 ? digits(at_) : at_ + 2;
    bool real = false;
    if (base == 10 && (at_ == 0 || source_[at_ - 1] != '.')) {
      if (end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
        end = digits(end + 1);
        real = true;
      }
      if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
        size_t exponent = end + 1;
        if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) ++exponent;
        if (exponent < source_.size() && is_digit(source_[exponent])) {
          end = digits(exponent);
          real = true;
        }
      }
    } else if (base != 10) {
      while (end < source_.size() && (is_name_part(source_[end]))) ++end;
    }
    std::string literal(source_.substr(at_ + (base == 10 ? 0 : 2), end - at_ - (base == 10 ? 0 : 2)));
    std::erase(literal, '_');
    push(real ? Type::real : Type::integer);
    const char* last = literal.data() + literal.size();
    const auto result = real ? std::from_chars(literal.data(), last, tokens_.back().real)
                             : std::from_chars(literal.data(), last, tokens_.back().integer, base);
    if (result.ec != std::errc() || result.ptr != last) {
      fail_at_line(line_, "the number ", source_.substr(at_, std::min(end - at_, kMaxNameBytes)),
                   " is out of range or malformed");
    }
    advance(end);
  }

  void lex_string(char quote) {
    std::string value;
    size_t at = at_ + 1;
    while (at < source_.size() && source_[at] != quote) {
      if (source_[at] != '\\') {
        value += source_[at++];
      } else {
        at = unescape(at + 1, value);
      }
    }
    if (at >= source_.size()) fail_at_line(line_, "a string that never ends");
    push(Type::string, std::move(value));
    advance(at + 1);
  }

  // `at` is behind the backslash; returns where the escape ends.
  size_t unescape(size_t at, std::string& value) {
    if (at >= source_.size()) fail_at_line(line_, "a string that never ends");
    const char c = source_[at];
    static constexpr std::string_view kNames = "abfnrtv\\'\"", kValues = "\a\b\f\n\r\t\v\\'\"";
    if (const size_t simple = kNames.find(c); simple != std::string_view::npos) {
      value += kValues[simple];
      return at + 1;
    }
    if (c == '\n') return at + 1;
    if (c == 'x') return code_point(at + 1, 2, 16, value);
    if (c == 'u') return code_point(at + 1, 4, 16, value);
    if (c == 'U') return code_point(at + 1, 8, 16, value);
    if (c == 'N') fail_at_line(line_, "\\N{...} in a string is not supported");
    if (c >= '0' && c <= '7') {
      size_t n = 1;
      while (n < 3 && at + n < source_.size() && source_[at + n] >= '0' && source_[at + n] <= '7') ++n;
      return code_point(at, n, 8, value);
    }
    value += '\\';
    return at;
  }

  size_t code_point(size_t at, size_t n_digits, int base, std::string& value) {
    uint32_t code = 0;
    const std::string_view digits = source_.substr(at, n_digits);
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), code, base);
    const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
    if (digits.size() != n_digits || result.ptr != digits.data() + n_digits || code > 0x10FFFF || surrogate) {
      fail_at_line(line_, "a malformed escape in a string");
    }
    append_utf8(value, code);
    return at + n_digits;
  }

  std::string owned_;
  std::string_view source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;
  std::string brackets_;  // closing ones that are due
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace lockstep::jinja
