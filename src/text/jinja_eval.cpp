// Expressions.
#include "base/error.h"
#include "text/jinja_filters.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_interpreter_depth.h"
#include "text/jinja_ops.h"

#include <algorithm>

namespace lockstep::jinja {

Value Interpreter::eval(const Expr& expr) {
  const Deeper deeper(*this);
  budget.spend(1);
  line_ = expr.line;
  switch (expr.kind) {
    case Expr::Kind::constant:
      return expr.constant;
    case Expr::Kind::name:
      return eval_name(expr);
    case Expr::Kind::list:
      return make_list(eval_all(expr.children), budget);
    case Expr::Kind::tuple:
      return make_sequence(eval_all(expr.children), budget, Sequence::Type::tuple);
    case Expr::Kind::dict:
      return eval_dict(expr);
    case Expr::Kind::attribute:
      return attribute(eval(*expr.children[0]), expr.name);
    case Expr::Kind::item: {
      const Value object = eval(*expr.children[0]);
      const Value key = eval(*expr.children[1]);
      if (const MarkedText* name = key.text(); name != nullptr && object.object() != nullptr) {
        budget.spend_text(name->bytes.size());
        return attribute(object, name->bytes);
      }
      return get_item(object, key, budget);
    }
    case Expr::Kind::slice:
      return eval_slice(expr);
    case Expr::Kind::call: {
      const Value callee = eval(*expr.children[0]);
      Arguments arguments = eval_arguments(expr);
      line_ = expr.line;
      return call(callee, arguments);
    }
    case Expr::Kind::filter:
      return eval_filter(expr, nullptr);
    case Expr::Kind::test:
      return eval_test(expr);
    case Expr::Kind::negate:
    case Expr::Kind::plus:
      return sign(eval(*expr.children[0]), expr.kind == Expr::Kind::negate);
    case Expr::Kind::negation:
      return Value(!is_true(eval(*expr.children[0])));
    case Expr::Kind::binary:
      return eval_binary(expr);
    case Expr::Kind::comparison:
      return eval_comparison(expr);
    case Expr::Kind::both: {
      Value left = eval(*expr.children[0]);
      return is_true(left) ? eval(*expr.children[1]) : left;
    }
    case Expr::Kind::either: {
      Value left = eval(*expr.children[0]);
      return is_true(left) ? left : eval(*expr.children[1]);
    }
    case Expr::Kind::concat:
      return eval_concat(expr);
    case Expr::Kind::conditional: {
      if (is_true(eval(*expr.children[1]))) return eval(*expr.children[0]);
      if (expr.children[2] != nullptr) return eval(*expr.children[2]);
      return make_undefined("the inline if of line ", std::to_string(expr.line), " is false and has no else");
    }
    case Expr::Kind::space_item:
      break;  // a target only
  }
  raise("an expression that can't be evaluated");
}

Value Interpreter::eval_name(const Expr& expr) {
  for (Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
    budget.spend(scope->variables.size() / 32);
    if (const Value* value = scope->find(expr.symbol)) return *value;
  }
  const std::string& name = program_.names[expr.symbol];
  if (const Function function = find_global(name)) {
    return Value(std::make_shared<const Callable>(Callable{name, function, {}, nullptr, {}}));
  }
  return make_undefined("'", name, "' is undefined");
}

Value Interpreter::eval_dict(const Expr& expr) {
  Dict dict;
  for (size_t i = 0; i < expr.children.size(); i += 2) {
    Value key = eval(*expr.children[i]);
    dict.set(std::move(key), eval(*expr.children[i + 1]), budget);
  }
  return Value(std::make_shared<const Dict>(std::move(dict)));
}

Value Interpreter::eval_binary(const Expr& expr) {
  const Value left = eval(*expr.children[0]);
  const Value right = eval(*expr.children[1]);
  line_ = expr.line;
  return arithmetic(expr.op[0], left, right, budget);
}

Value Interpreter::eval_comparison(const Expr& expr) {
  Value left = eval(*expr.children[0]);
  for (size_t i = 0; i < expr.op.size(); ++i) {
    Value right = eval(*expr.children[i + 1]);
    line_ = expr.line;
    if (!compare(expr.op[i], left, right, budget)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value Interpreter::eval_concat(const Expr& expr) {
  MarkedText joined;
  for (const ExprPtr& part : expr.children) {
    const Value value = eval(*part);
    if (const MarkedText* t = value.text()) {
      joined.append(*t);
    } else {
      joined.append(to_text(value));
    }
    check_length(joined);
  }
  return text(std::move(joined));
}

Value Interpreter::eval_slice(const Expr& expr) {
  const Value object = eval(*expr.children[0]);
  Value bounds[3];
  const Value* given[3] = {};
  for (size_t i = 0; i < 3; ++i) {
    if (expr.children[i + 1] == nullptr) continue;
    bounds[i] = eval(*expr.children[i + 1]);
    if (!bounds[i].is_none()) given[i] = &bounds[i];
  }
  line_ = expr.line;
  return get_slice(object, given[0], given[1], given[2], budget);
}

Value Interpreter::eval_filter(const Expr& expr, const Value* captured) {
  const Deeper deeper(*this);
  const Expr* inner = expr.children[0].get();
  const Value input = inner == nullptr                                           ? *captured
                      : inner->kind == Expr::Kind::filter && captured != nullptr ? eval_filter(*inner, captured)
                                                                                 : eval(*inner);
  Arguments arguments = eval_arguments(expr);
  line_ = expr.line;
  return expr.filter->apply(*this, input, arguments);
}

Value Interpreter::eval_test(const Expr& expr) {
  const Value input = eval(*expr.children[0]);
  Arguments arguments = eval_arguments(expr);
  line_ = expr.line;
  return Value(expr.test->apply(*this, input, arguments));
}

std::vector<Value> Interpreter::eval_all(const std::vector<ExprPtr>& parts) {
  std::vector<Value> values;
  values.reserve(parts.size());
  for (const ExprPtr& part : parts) values.push_back(eval(*part));
  return values;
}

Arguments Interpreter::eval_arguments(const Expr& expr) {
  Arguments arguments;
  arguments.positional = eval_all(expr.positional);
  if (expr.star != nullptr) {
    for (Value& value : iterate(eval(*expr.star), budget)) arguments.positional.push_back(std::move(value));
  }
  for (const auto& [name, value] : expr.named) arguments.named.emplace_back(name, eval(*value));
  if (expr.star_star != nullptr) {
    const Value more = eval(*expr.star_star);
    if (more.dict() == nullptr) raise("argument after ** must be a mapping, not ", type_name(more));
    if (more.dict()->entries.size() > 255) raise("more than 255 named arguments");
    for (const auto& [key, value] : more.dict()->entries) {
      if (key.text() == nullptr) raise("keywords must be strings");
      const std::string& name = key.text()->bytes;
      budget.spend_text(name.size());
      const auto given =
          std::find_if(arguments.named.begin(), arguments.named.end(), [&](const auto& a) { return a.first == name; });
      if (given != arguments.named.end()) raise("got multiple values for keyword argument '", name, "'");
      arguments.named.emplace_back(name, value);
    }
  }
  return arguments;
}

}  // namespace lockstep::jinja
