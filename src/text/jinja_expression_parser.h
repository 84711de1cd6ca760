// The expressions of a template, by recursive descent over its tokens; jinja_parser.cpp parses the statements around them.
// Depth is limited, so that neither this parser nor the interpreter can run out of stack.
//   ExpressionParser p(tokens, program); ExprPtr e = p.parse_expression();
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_lexer.h"

namespace lockstep::jinja {

class ExpressionParser {
 public:
  ExpressionParser(std::vector<Token> tokens, Program& program) : tokens_(std::move(tokens)), program_(program) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& next() { return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_[at_]; }
  bool skip_symbol(std::string_view symbol);
  bool skip_name(std::string_view name);
  void expect_symbol(std::string_view symbol);
  std::string expect_name();
  void expect(Token::Type type, std::string_view what);
  [[noreturn]] void unexpected(std::string_view wanted) const;

  ExprPtr parse_expression(bool with_conditional = true);
  // Expressions with commas between make a tuple. Ends where a tag ends, or at the name `stop`.
  ExprPtr parse_tuple(bool with_conditional = true, std::string_view stop = {}, bool in_parentheses = false);
  ExprPtr parse_target(std::string_view stop = {}, bool allows_space = false);  // of an assignment
  ExprPtr parse_filters(ExprPtr input);  // null input: the captured text of a block; returns input where no | follows
  ExprPtr parse_filters_from_name();     // {% filter name | name %}: the first | is left out

  Symbol intern(const std::string& name);

  // Names that change what a macro takes, seen since the flags were last cleared.
  struct Uses {
    bool varargs = false, kwargs = false, caller = false;
  };
  Uses uses;

  // Nesting of anything the parser recurses over.
  struct Deeper {
    explicit Deeper(ExpressionParser& p);
    ~Deeper() { --parser.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
    ExpressionParser& parser;
  };

 private:
  ExprPtr node(Expr::Kind kind, int line) const;
  static ExprPtr finish(ExprPtr expr);
  ExprPtr binary(Operator op, ExprPtr left, ExprPtr right, int line) const;

  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_comparison();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filters = true);
  ExprPtr parse_primary();
  ExprPtr parse_target_name(bool allows_space);
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr expr);
  ExprPtr parse_postfix_filters(ExprPtr expr);
  ExprPtr parse_call(ExprPtr callee);
  ExprPtr parse_subscript(ExprPtr expr);
  ExprPtr parse_filter(ExprPtr input);
  ExprPtr parse_test(ExprPtr expr);
  void parse_arguments(Expr& call);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  Program& program_;
  int depth_ = 0;
};

}  // namespace lockstep::jinja
