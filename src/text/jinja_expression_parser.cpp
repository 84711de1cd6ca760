#include "text/jinja_expression_parser.h"

#include "base/error.h"
#include "text/jinja_filters.h"

#include <algorithm>

namespace lockstep::jinja {

using Type = Token::Type;

namespace {

std::string describe(const Token& token) {
  switch (token.type) {
    case Type::text:
      return "text";
    case Type::begin_output:
      return "{{";
    case Type::end_output:
      return "}}";
    case Type::begin_block:
      return "{%";
    case Type::end_block:
      return "%}";
    case Type::string:
      return "a string";
    case Type::integer:
    case Type::real:
      return "a number";
    case Type::end:
      return "the end of the template";
    default:
      return concat('\'', token.text, '\'');
  }
}

}  // namespace

ExpressionParser::Deeper::Deeper(ExpressionParser& p) : parser(p) {
  if (++p.depth_ > kMaxNodeDepth) fail_at_line(p.current().line, "nested deeper than ", kMaxNodeDepth);
}

void ExpressionParser::unexpected(std::string_view wanted) const {
  fail_at_line(current().line, "unexpected ", describe(current()), ", expected ", wanted);
}

bool ExpressionParser::skip_symbol(std::string_view symbol) {
  if (!current().is_symbol(symbol)) return false;
  next();
  return true;
}

bool ExpressionParser::skip_name(std::string_view name) {
  if (!current().is_name(name)) return false;
  next();
  return true;
}

void ExpressionParser::expect_symbol(std::string_view symbol) {
  if (!skip_symbol(symbol)) unexpected(concat("'", symbol, "'"));
}

std::string ExpressionParser::expect_name() {
  if (current().type != Type::name) unexpected("a name");
  return next().text;
}

void ExpressionParser::expect(Type type, std::string_view what) {
  if (current().type != type) unexpected(what);
  next();
}

Symbol ExpressionParser::intern(const std::string& name) {
  const auto [it, fresh] = program_.symbols.emplace(name, static_cast<Symbol>(program_.names.size()));
  if (fresh) program_.names.push_back(name);
  return it->second;
}

ExprPtr ExpressionParser::node(Expr::Kind kind, int line) const {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = line;
  return expr;
}

// Sets the depth from the parts.
ExprPtr ExpressionParser::finish(ExprPtr expr) {
  const auto include = [&](const ExprPtr& part) {
    if (part != nullptr) expr->depth = std::max(expr->depth, part->depth + 1);
  };
  for (const auto& part : expr->children) include(part);
  for (const auto& part : expr->positional) include(part);
  for (const auto& part : expr->named) include(part.second);
  include(expr->star);
  include(expr->star_star);
  if (expr->depth > kMaxNodeDepth) fail_at_line(expr->line, "an expression deeper than ", kMaxNodeDepth);
  return expr;
}

ExprPtr ExpressionParser::binary(Operator op, ExprPtr left, ExprPtr right, int line) const {
  ExprPtr expr = node(Expr::Kind::binary, line);
  expr->op = {op};
  expr->children.push_back(std::move(left));
  expr->children.push_back(std::move(right));
  return finish(std::move(expr));
}

ExprPtr ExpressionParser::parse_expression(bool with_conditional) {
  const Deeper deeper(*this);
  ExprPtr value = parse_or();
  while (with_conditional && current().is_name("if")) {
    ExprPtr expr = node(Expr::Kind::conditional, next().line);
    expr->children.push_back(std::move(value));
    expr->children.push_back(parse_or());
    expr->children.push_back(skip_name("else") ? parse_expression() : nullptr);
    value = finish(std::move(expr));
  }
  return value;
}

ExprPtr ExpressionParser::parse_or() {
  ExprPtr left = parse_and();
  while (current().is_name("or")) {
    ExprPtr expr = node(Expr::Kind::either, next().line);
    expr->children.push_back(std::move(left));
    expr->children.push_back(parse_and());
    left = finish(std::move(expr));
  }
  return left;
}

ExprPtr ExpressionParser::parse_and() {
  ExprPtr left = parse_not();
  while (current().is_name("and")) {
    ExprPtr expr = node(Expr::Kind::both, next().line);
    expr->children.push_back(std::move(left));
    expr->children.push_back(parse_not());
    left = finish(std::move(expr));
  }
  return left;
}

ExprPtr ExpressionParser::parse_not() {
  if (!current().is_name("not")) return parse_comparison();
  const Deeper deeper(*this);
  ExprPtr expr = node(Expr::Kind::negation, next().line);
  expr->children.push_back(parse_not());
  return finish(std::move(expr));
}

ExprPtr ExpressionParser::parse_comparison() {
  static constexpr std::pair<std::string_view, Operator> kSymbols[] = {{"==", Operator::eq}, {"!=", Operator::ne},
                                                                       {"<", Operator::lt},  {"<=", Operator::le},
                                                                       {">", Operator::gt},  {">=", Operator::ge}};
  ExprPtr left = parse_sum();
  ExprPtr expr = node(Expr::Kind::comparison, current().line);
  while (true) {
    const auto* symbol = std::find_if(std::begin(kSymbols), std::end(kSymbols),
                                      [&](const auto& pair) { return current().is_symbol(pair.first); });
    if (symbol != std::end(kSymbols)) {
      next();
      expr->op.push_back(symbol->second);
    } else if (skip_name("in")) {
      expr->op.push_back(Operator::in);
    } else if (current().is_name("not") && ahead().is_name("in")) {
      next();
      next();
      expr->op.push_back(Operator::not_in);
    } else {
      break;
    }
    if (left != nullptr) expr->children.push_back(std::move(left));
    expr->children.push_back(parse_sum());
  }
  return left != nullptr ? std::move(left) : finish(std::move(expr));
}

ExprPtr ExpressionParser::parse_sum() {
  ExprPtr left = parse_concat();
  while (current().is_symbol("+") || current().is_symbol("-")) {
    const Token& token = next();
    left = binary(token.text == "+" ? Operator::add : Operator::sub, std::move(left), parse_concat(), token.line);
  }
  return left;
}

ExprPtr ExpressionParser::parse_concat() {
  ExprPtr left = parse_product();
  if (!current().is_symbol("~")) return left;
  ExprPtr expr = node(Expr::Kind::concat, current().line);
  expr->children.push_back(std::move(left));
  while (skip_symbol("~")) expr->children.push_back(parse_product());
  return finish(std::move(expr));
}

ExprPtr ExpressionParser::parse_product() {
  static constexpr std::pair<std::string_view, Operator> kSymbols[] = {
      {"*", Operator::mul}, {"/", Operator::div}, {"//", Operator::floor_div}, {"%", Operator::mod}};
  ExprPtr left = parse_power();
  while (true) {
    const auto* symbol = std::find_if(std::begin(kSymbols), std::end(kSymbols),
                                      [&](const auto& pair) { return current().is_symbol(pair.first); });
    if (symbol == std::end(kSymbols)) return left;
    const int line = next().line;
    left = binary(symbol->second, std::move(left), parse_power(), line);
  }
}

ExprPtr ExpressionParser::parse_power() {
  ExprPtr left = parse_unary();
  while (current().is_symbol("**")) {
    const int line = next().line;
    left = binary(Operator::pow, std::move(left), parse_unary(), line);
  }
  return left;
}

ExprPtr ExpressionParser::parse_unary(bool with_filters) {
  const Deeper deeper(*this);
  ExprPtr expr;
  if (current().is_symbol("-") || current().is_symbol("+")) {
    const Token& sign = next();
    expr = node(sign.text == "-" ? Expr::Kind::negate : Expr::Kind::plus, sign.line);
    expr->children.push_back(parse_unary(false));
    expr = finish(std::move(expr));
  } else {
    expr = parse_primary();
  }
  expr = parse_postfix(std::move(expr));
  return with_filters ? parse_postfix_filters(std::move(expr)) : std::move(expr);
}

ExprPtr ExpressionParser::parse_primary() {
  const Token& token = current();
  ExprPtr expr = node(Expr::Kind::constant, token.line);
  if (token.type == Type::name) {
    next();
    if (token.text == "true" || token.text == "True") {
      expr->constant = Value(true);
    } else if (token.text == "false" || token.text == "False") {
      expr->constant = Value(false);
    } else if (token.text != "none" && token.text != "None") {
      expr->kind = Expr::Kind::name;
      expr->symbol = intern(token.text);
      uses.varargs |= token.text == "varargs";
      uses.kwargs |= token.text == "kwargs";
      uses.caller |= token.text == "caller";
    }
    return expr;
  }
  if (token.type == Type::string) {
    std::string value;
    while (current().type == Type::string) value += next().text;
    expr->constant = make_text(value, true);
    return expr;
  }
  if (token.type == Type::integer || token.type == Type::real) {
    expr->constant = token.type == Type::integer ? Value(token.integer) : Value(token.real);
    next();
    return expr;
  }
  if (token.is_symbol("(")) {
    next();
    expr = parse_tuple(true, {}, true);
    expect_symbol(")");
    return expr;
  }
  if (token.is_symbol("[")) return parse_list();
  if (token.is_symbol("{")) return parse_dict();
  unexpected("an expression");
}

ExprPtr ExpressionParser::parse_list() {
  ExprPtr expr = node(Expr::Kind::list, next().line);
  while (!current().is_symbol("]")) {
    if (!expr->children.empty()) expect_symbol(",");
    if (current().is_symbol("]")) break;
    expr->children.push_back(parse_expression());
  }
  next();
  return finish(std::move(expr));
}

ExprPtr ExpressionParser::parse_dict() {
  ExprPtr expr = node(Expr::Kind::dict, next().line);
  while (!current().is_symbol("}")) {
    if (!expr->children.empty()) expect_symbol(",");
    if (current().is_symbol("}")) break;
    expr->children.push_back(parse_expression());
    expect_symbol(":");
    expr->children.push_back(parse_expression());
  }
  next();
  return finish(std::move(expr));
}

ExprPtr ExpressionParser::parse_tuple(bool with_conditional, std::string_view stop, bool in_parentheses) {
  ExprPtr tuple = node(Expr::Kind::tuple, current().line);
  const auto at_end = [&] {
    return current().type == Type::end_output || current().type == Type::end_block || current().is_symbol(")") ||
           (!stop.empty() && current().is_name(stop));
  };
  bool is_tuple = false;
  while (!at_end()) {
    tuple->children.push_back(parse_expression(with_conditional));
    if (!skip_symbol(",")) break;
    is_tuple = true;
  }
  if (is_tuple || (tuple->children.empty() && in_parentheses)) return finish(std::move(tuple));
  if (tuple->children.empty()) unexpected("an expression");
  return std::move(tuple->children[0]);
}

ExprPtr ExpressionParser::parse_target(std::string_view stop, bool allows_space) {
  const Deeper deeper(*this);
  ExprPtr tuple = node(Expr::Kind::tuple, current().line);
  bool is_tuple = false;
  while (true) {
    if (skip_symbol("(")) {
      tuple->children.push_back(parse_target({}, allows_space));
      expect_symbol(")");
    } else if (current().type == Type::name && (stop.empty() || !current().is_name(stop))) {
      tuple->children.push_back(parse_target_name(allows_space));
    } else {
      break;
    }
    if (!skip_symbol(",")) break;
    is_tuple = true;
  }
  if (tuple->children.empty()) unexpected("a name to assign to");
  return is_tuple ? finish(std::move(tuple)) : std::move(tuple->children[0]);
}

ExprPtr ExpressionParser::parse_target_name(bool allows_space) {
  static constexpr std::string_view kConstants[] = {"true", "True", "false", "False", "none", "None"};
  ExprPtr target = node(Expr::Kind::name, current().line);
  const std::string name = expect_name();
  if (std::find(std::begin(kConstants), std::end(kConstants), name) != std::end(kConstants)) {
    fail_at_line(target->line, "can't assign to '", name, "'");
  }
  target->symbol = intern(name);
  if (!allows_space || !skip_symbol(".")) return target;
  ExprPtr item = node(Expr::Kind::space_item, target->line);
  item->name = expect_name();
  item->children.push_back(std::move(target));
  return finish(std::move(item));
}

}  // namespace lockstep::jinja
