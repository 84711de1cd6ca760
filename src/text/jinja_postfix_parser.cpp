// What follows a primary expression: .name, [item], (arguments), | filter, is test.
#include "base/error.h"
#include "text/jinja_expression_parser.h"
#include "text/jinja_filters.h"

namespace lockstep::jinja {

using Type = Token::Type;

ExprPtr ExpressionParser::parse_postfix(ExprPtr expr) {
  while (true) {
    if (current().is_symbol(".") || current().is_symbol("[")) {
      expr = parse_subscript(std::move(expr));
    } else if (current().is_symbol("(")) {
      expr = parse_call(std::move(expr));
    } else {
      return expr;
    }
  }
}

ExprPtr ExpressionParser::parse_postfix_filters(ExprPtr expr) {
  while (true) {
    if (current().is_symbol("|")) {
      expr = parse_filters(std::move(expr));
    } else if (current().is_name("is")) {
      expr = parse_test(std::move(expr));
    } else if (current().is_symbol("(")) {
      expr = parse_call(std::move(expr));
    } else {
      return expr;
    }
  }
}

ExprPtr ExpressionParser::parse_call(ExprPtr callee) {
  ExprPtr call = node(Expr::Kind::call, current().line);
  call->children.push_back(std::move(callee));
  parse_arguments(*call);
  return finish(std::move(call));
}

ExprPtr ExpressionParser::parse_subscript(ExprPtr expr) {
  const Token& opening = next();
  if (opening.text == ".") {
    if (current().type == Type::name) {
      ExprPtr attribute = node(Expr::Kind::attribute, opening.line);
      attribute->name = next().text;
      attribute->children.push_back(std::move(expr));
      return finish(std::move(attribute));
    }
    if (current().type != Type::integer) unexpected("a name or an index");
    ExprPtr index = node(Expr::Kind::constant, opening.line);
    index->constant = Value(next().integer);
    ExprPtr item = node(Expr::Kind::item, opening.line);
    item->children.push_back(std::move(expr));
    item->children.push_back(std::move(index));
    return finish(std::move(item));
  }
  ExprPtr slice = node(Expr::Kind::slice, opening.line);
  slice->children.push_back(std::move(expr));
  const auto part = [&]() -> ExprPtr {
    if (current().is_symbol(":") || current().is_symbol("]")) return nullptr;
    return parse_expression();
  };
  ExprPtr first = part();
  if (!skip_symbol(":")) {
    if (first == nullptr) unexpected("an index");
    slice->kind = Expr::Kind::item;
    if (current().is_symbol(",")) {
      ExprPtr tuple = node(Expr::Kind::tuple, opening.line);
      tuple->children.push_back(std::move(first));
      while (skip_symbol(",")) tuple->children.push_back(parse_expression());
      first = finish(std::move(tuple));
    }
    slice->children.push_back(std::move(first));
  } else {
    slice->children.push_back(std::move(first));
    slice->children.push_back(part());
    slice->children.push_back(skip_symbol(":") ? part() : nullptr);
  }
  expect_symbol("]");
  return finish(std::move(slice));
}

void ExpressionParser::parse_arguments(Expr& call) {
  expect_symbol("(");
  bool first = true;
  while (!current().is_symbol(")")) {
    if (!first) {
      expect_symbol(",");
      if (current().is_symbol(")")) break;
    }
    first = false;
    const int line = current().line;
    if (skip_symbol("*")) {
      if (call.star != nullptr || call.star_star != nullptr) fail_at_line(line, "arguments in a wrong order");
      call.star = parse_expression();
    } else if (skip_symbol("**")) {
      if (call.star_star != nullptr) fail_at_line(line, "arguments in a wrong order");
      call.star_star = parse_expression();
    } else if (current().type == Type::name && ahead().is_symbol("=")) {
      if (call.star_star != nullptr) fail_at_line(line, "arguments in a wrong order");
      std::string name = next().text;
      next();
      for (const auto& other : call.named) {
        if (other.first == name) fail_at_line(line, "the argument '", name, "' is given twice");
      }
      if (call.named.size() >= 255) fail_at_line(line, "more than 255 named arguments");
      ExprPtr value = parse_expression();
      call.named.emplace_back(std::move(name), std::move(value));
    } else {
      if (call.star != nullptr || call.star_star != nullptr || !call.named.empty()) {
        fail_at_line(line, "arguments in a wrong order");
      }
      call.positional.push_back(parse_expression());
    }
  }
  expect_symbol(")");
}

ExprPtr ExpressionParser::parse_filters(ExprPtr input) {
  while (current().is_symbol("|")) {
    next();
    input = parse_filter(std::move(input));
  }
  return input;
}

ExprPtr ExpressionParser::parse_filters_from_name() { return parse_filters(parse_filter(nullptr)); }

ExprPtr ExpressionParser::parse_filter(ExprPtr input) {
  ExprPtr expr = node(Expr::Kind::filter, current().line);
  std::string name = expect_name();
  while (skip_symbol(".")) name.append(1, '.').append(expect_name());
  expr->name = name;
  expr->filter = find_filter(name);
  if (expr->filter == nullptr) fail_at_line(expr->line, "the filter '", name, "' is not supported");
  expr->children.push_back(std::move(input));
  if (current().is_symbol("(")) parse_arguments(*expr);
  return finish(std::move(expr));
}

ExprPtr ExpressionParser::parse_test(ExprPtr input) {
  const int line = next().line;
  const bool negated = skip_name("not");
  ExprPtr expr = node(Expr::Kind::test, line);
  std::string name = expect_name();
  while (skip_symbol(".")) name.append(1, '.').append(expect_name());
  expr->name = name;
  expr->test = find_test(name);
  if (expr->test == nullptr) fail_at_line(line, "the test '", name, "' is not supported");
  expr->children.push_back(std::move(input));
  const Token& after = current();
  const bool word = after.type == Type::name && after.text != "else" && after.text != "or" && after.text != "and";
  if (after.is_symbol("(")) {
    parse_arguments(*expr);
  } else if (word || after.type == Type::string || after.type == Type::integer || after.type == Type::real ||
             after.is_symbol("[") || after.is_symbol("{")) {
    if (after.is_name("is")) fail_at_line(line, "tests can't be chained with is");
    expr->positional.push_back(parse_postfix(parse_primary()));
  }
  expr = finish(std::move(expr));
  if (!negated) return expr;
  ExprPtr negation = node(Expr::Kind::negation, line);
  negation->children.push_back(std::move(expr));
  return finish(std::move(negation));
}

}  // namespace lockstep::jinja
