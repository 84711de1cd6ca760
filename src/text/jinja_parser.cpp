#include "text/jinja_parser.h"

#include "base/error.h"
#include "base/utf8.h"
#include "text/jinja_expression_parser.h"
#include "text/jinja_lexer.h"

#include <algorithm>

namespace lockstep::jinja {

using Type = Token::Type;

namespace {

class Parser {
 public:
  Parser(std::vector<Token> tokens, Program& program) : p_(std::move(tokens), program) {}

  // Statements up to {% end %} with one of the names of `ends` (its tag is current then, its {% consumed), or to the end of the
  // template where `ends` is empty.
  Body parse_body(std::initializer_list<std::string_view> ends, int opened_at, std::string_view opened) {
    const ExpressionParser::Deeper deeper(p_);
    Body body;
    while (true) {
      const Token& token = p_.current();
      if (token.type == Type::end) {
        if (ends.size() == 0) return body;
        fail_at_line(opened_at, "{% ", opened, " %} is never closed");
      }
      if (token.type == Type::text) {
        auto expr = std::make_unique<Expr>();
        expr->line = token.line;
        expr->constant = make_text(p_.next().text, true);
        add_output(body, std::move(expr));
      } else if (token.type == Type::begin_output) {
        p_.next();
        add_output(body, p_.parse_tuple());
        p_.expect(Type::end_output, "}}");
      } else {
        p_.next();
        const Token& tag = p_.current();
        if (tag.type == Type::name && std::find(ends.begin(), ends.end(), tag.text) != ends.end()) return body;
        body.push_back(parse_statement());
        p_.expect(Type::end_block, "%}");
      }
    }
  }

 private:
  static void add_output(Body& body, ExprPtr expr) {
    if (body.empty() || body.back().kind != Statement::Kind::output) {
      body.emplace_back();
      body.back().line = expr->line;
    }
    body.back().expressions.push_back(std::move(expr));
  }

  // From behind the tag's %} to the closing tag, which is consumed but for its %}.
  Body parse_block(std::string_view end, int line, std::string_view name) {
    open_block();
    Body body = parse_body({end}, line, name);
    p_.next();
    return body;
  }

  void open_block() {
    p_.skip_symbol(":");
    p_.expect(Type::end_block, "%}");
  }

  Statement parse_statement() {
    const Token& tag = p_.current();
    if (tag.type != Type::name) p_.unexpected("the name of a statement");
    const std::string name = p_.next().text;
    Statement statement;
    statement.line = tag.line;
    if (name == "set") return parse_set(std::move(statement));
    if (name == "if") return parse_if(std::move(statement));
    if (name == "for") return parse_for(std::move(statement));
    if (name == "macro") return parse_macro(std::move(statement));
    if (name == "call") return parse_call(std::move(statement));
    if (name == "filter") return parse_filter(std::move(statement));
    if (name == "with") return parse_with(std::move(statement));
    if (name == "generation") {
      statement.kind = Statement::Kind::scope;
      statement.body = std::make_unique<Body>(parse_inner("endgeneration", statement.line, name));
      return statement;
    }
    if (name == "break" || name == "continue") {
      if (loop_depth_ == 0) fail_at_line(statement.line, "{% ", name, " %} outside of a loop");
      statement.kind = name == "break" ? Statement::Kind::break_loop : Statement::Kind::continue_loop;
      return statement;
    }
    fail_at_line(statement.line, "the statement {% ", name, " %} is not supported here");
  }

  Statement parse_set(Statement statement) {
    statement.target = p_.parse_target({}, true);
    if (p_.skip_symbol("=")) {
      statement.kind = Statement::Kind::set;
      statement.value = p_.parse_tuple();
      return statement;
    }
    statement.kind = Statement::Kind::set_block;
    statement.value = p_.parse_filters(nullptr);
    statement.body = std::make_unique<Body>(parse_inner("endset", statement.line, "set"));
    return statement;
  }

  Statement parse_if(Statement statement) {
    statement.kind = Statement::Kind::if_chain;
    statement.branches.push_back({p_.parse_tuple(false), {}});
    while (true) {
      open_block();
      Branch& branch = statement.branches.back();
      if (branch.condition == nullptr) {
        branch.body = parse_body({"endif"}, statement.line, "if");
        p_.next();
        return statement;
      }
      branch.body = parse_body({"elif", "else", "endif"}, statement.line, "if");
      const std::string name = p_.next().text;
      if (name == "endif") return statement;
      statement.branches.push_back({name == "elif" ? p_.parse_tuple(false) : nullptr, {}});
    }
  }

  Statement parse_for(Statement statement) {
    statement.kind = Statement::Kind::for_loop;
    statement.target = p_.parse_target("in");
    if (!p_.skip_name("in")) p_.unexpected("'in'");
    statement.value = p_.parse_tuple(false, "recursive");
    if (p_.skip_name("if")) statement.condition = p_.parse_expression();
    statement.recursive = p_.skip_name("recursive");
    open_block();
    ++loop_depth_;
    statement.body = std::make_unique<Body>(parse_body({"else", "endfor"}, statement.line, "for"));
    --loop_depth_;
    if (p_.next().text == "else") {
      statement.branches.push_back({nullptr, parse_block("endfor", statement.line, "for")});
    }
    return statement;
  }

  Statement parse_macro(Statement statement) {
    statement.kind = Statement::Kind::macro;
    const int line = statement.line;
    std::string name = p_.expect_name();
    statement.target = name_target(name, line);
    statement.macro = std::make_unique<MacroNode>();
    statement.macro->name = name;
    parse_parameters(*statement.macro);
    parse_macro_body(*statement.macro, "endmacro", line, "macro");
    return statement;
  }

  Statement parse_call(Statement statement) {
    statement.kind = Statement::Kind::call_block;
    statement.macro = std::make_unique<MacroNode>();
    statement.macro->name = "caller";
    if (p_.current().is_symbol("(")) parse_parameters(*statement.macro);
    statement.value = p_.parse_expression();
    if (statement.value->kind != Expr::Kind::call) fail_at_line(statement.line, "{% call %} wants the call of a macro");
    parse_macro_body(*statement.macro, "endcall", statement.line, "call");
    return statement;
  }

  void parse_parameters(MacroNode& macro) {
    p_.expect_symbol("(");
    while (!p_.current().is_symbol(")")) {
      if (!macro.parameters.empty()) p_.expect_symbol(",");
      const int line = p_.current().line;
      Parameter parameter;
      parameter.name = p_.expect_name();
      for (const Parameter& other : macro.parameters) {
        if (other.name == parameter.name) fail_at_line(line, "the parameter '", parameter.name, "' is given twice");
      }
      if (macro.parameters.size() >= 255) fail_at_line(line, "more than 255 parameters");
      parameter.symbol = p_.intern(parameter.name);
      if (p_.skip_symbol("=")) {
        parameter.fallback = p_.parse_expression();
      } else if (!macro.parameters.empty() && macro.parameters.back().fallback != nullptr) {
        fail_at_line(line, "a parameter without a default follows one with a default");
      }
      macro.parameters.push_back(std::move(parameter));
    }
    p_.expect_symbol(")");
  }

  void parse_macro_body(MacroNode& macro, std::string_view end, int line, std::string_view tag) {
    const ExpressionParser::Uses outside = p_.uses;
    p_.uses = {};
    macro.body = parse_inner(end, line, tag);
    macro.takes_varargs = p_.uses.varargs;
    macro.takes_kwargs = p_.uses.kwargs;
    macro.takes_caller = p_.uses.caller;
    p_.uses = {outside.varargs || p_.uses.varargs, outside.kwargs || p_.uses.kwargs, outside.caller || p_.uses.caller};
  }

  // A body that {% break %} can't leave.
  Body parse_inner(std::string_view end, int line, std::string_view name) {
    const int outside = std::exchange(loop_depth_, 0);
    Body body = parse_block(end, line, name);
    loop_depth_ = outside;
    return body;
  }

  Statement parse_filter(Statement statement) {
    statement.kind = Statement::Kind::filter_block;
    statement.value = p_.parse_filters_from_name();
    statement.body = std::make_unique<Body>(parse_inner("endfilter", statement.line, "filter"));
    return statement;
  }

  Statement parse_with(Statement statement) {
    statement.kind = Statement::Kind::with;
    while (p_.current().type == Type::name) {
      statement.targets.push_back(name_target(p_.expect_name(), statement.line));
      p_.expect_symbol("=");
      statement.expressions.push_back(p_.parse_expression());
      if (!p_.skip_symbol(",")) break;
    }
    statement.body = std::make_unique<Body>(parse_block("endwith", statement.line, "with"));
    return statement;
  }

  ExprPtr name_target(const std::string& name, int line) {
    auto target = std::make_unique<Expr>();
    target->kind = Expr::Kind::name;
    target->line = line;
    target->symbol = p_.intern(name);
    return target;
  }

  ExpressionParser p_;
  int loop_depth_ = 0;
};

}  // namespace

Program parse_template(std::string_view source) {
  if (source.size() > kMaxTemplateBytes) {
    fail(ExitCode::unreadable, "chat template of ", source.size(), " bytes, at most ", kMaxTemplateBytes, " are read");
  }
  if (const size_t at = find_invalid_utf8(source); at != std::string_view::npos) {
    fail(ExitCode::unreadable, "chat template: invalid UTF-8 at byte ", at);
  }
  Program program;
  Parser parser(tokenize(source), program);
  program.body = parser.parse_body({}, 1, {});
  for (const auto& [name, symbol] : {std::pair<const char*, Symbol*>{"loop", &program.loop},
                                     {"caller", &program.caller},
                                     {"varargs", &program.varargs},
                                     {"kwargs", &program.kwargs}}) {
    const auto [it, fresh] = program.symbols.emplace(name, static_cast<Symbol>(program.names.size()));
    if (fresh) program.names.push_back(name);
    *symbol = it->second;
  }
  return program;
}

}  // namespace lockstep::jinja
