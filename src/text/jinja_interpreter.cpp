// Statements and scopes; expressions are in jinja_eval.cpp.
#include "text/jinja_interpreter.h"

#include "base/error.h"
#include "text/jinja_interpreter_depth.h"
#include "text/jinja_ops.h"

#include <algorithm>

namespace lockstep::jinja {

Value* Scope::find(Symbol symbol) {
  for (auto& [name, value] : variables) {
    if (name == symbol) return &value;
  }
  return nullptr;
}

void Scope::set(Symbol symbol, Value value) {
  if (Value* old = find(symbol)) {
    *old = std::move(value);
  } else {
    variables.emplace_back(symbol, std::move(value));
  }
}

Interpreter::Interpreter(const Program& program, Variables variables, std::string clock, int64_t extra_fuel)
    : program_(program), clock_(std::move(clock)), root_(std::make_shared<Scope>()), scope_(root_) {
  budget.fuel += extra_fuel;
  for (auto& [name, value] : variables) {
    const auto symbol = program_.symbols.find(name);
    if (symbol != program_.symbols.end()) root_->set(symbol->second, std::move(value));
  }
}

MarkedText Interpreter::render() {
  MarkedText prompt;
  out_ = &prompt;
  run(program_.body);
  out_ = nullptr;
  return prompt;
}

Object* Interpreter::make_object(Object::Type type) {
  budget.spend(8);
  objects_.push_back(std::make_unique<Object>());
  objects_.back()->type = type;
  return objects_.back().get();
}

void Interpreter::write(const Value& value) {
  if (const MarkedText* text = value.text()) {
    budget.spend_text(text->bytes.size());
    out_->append(*text);
  } else {
    out_->append(to_text(value));
  }
  if (out_->bytes.size() > kMaxTextBytes) raise("the template writes more than ", kMaxTextBytes, " bytes");
  check_length(*out_);
}

MarkedText Interpreter::capture(const Body& body) {
  MarkedText text;
  MarkedText* outside = std::exchange(out_, &text);
  run_in_scope(body);
  out_ = outside;
  return text;
}

Interpreter::Flow Interpreter::run_in_scope(const Body& body) {
  const auto outside = scope_;
  scope_ = std::make_shared<Scope>(Scope{outside, {}});
  const Flow flow = run(body);
  scope_ = outside;
  return flow;
}

Interpreter::Flow Interpreter::run(const Body& body) {
  for (const Statement& statement : body) {
    const Flow flow = run(statement);
    if (flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::run(const Statement& statement) {
  const Deeper deeper(*this);
  line_ = statement.line;
  budget.spend(1);
  switch (statement.kind) {
    case Statement::Kind::output:
      for (const ExprPtr& part : statement.expressions) write(eval(*part));
      return Flow::normal;
    case Statement::Kind::set:
      assign(*statement.target, eval(*statement.value));
      return Flow::normal;
    case Statement::Kind::set_block: {
      Value value = text(capture(*statement.body));
      assign(*statement.target, statement.value == nullptr ? std::move(value) : eval_filter(*statement.value, &value));
      return Flow::normal;
    }
    case Statement::Kind::for_loop:
      return run_for(statement);
    case Statement::Kind::if_chain:
      return run_if(statement);
    case Statement::Kind::macro:
      define_macro(statement);
      return Flow::normal;
    case Statement::Kind::call_block:
      run_call_block(statement);
      return Flow::normal;
    case Statement::Kind::filter_block: {
      const Value value = text(capture(*statement.body));
      write(eval_filter(*statement.value, &value));
      return Flow::normal;
    }
    case Statement::Kind::with:
      return run_with(statement);
    case Statement::Kind::scope:
      return run_in_scope(*statement.body);
    case Statement::Kind::break_loop:
      return Flow::leave_loop;
    case Statement::Kind::continue_loop:
      return Flow::next_iteration;
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::run_if(const Statement& statement) {
  for (const Branch& branch : statement.branches) {
    if (branch.condition == nullptr || is_true(eval(*branch.condition))) return run(branch.body);
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::run_with(const Statement& statement) {
  std::vector<Value> values = eval_all(statement.expressions);
  const auto outside = scope_;
  scope_ = std::make_shared<Scope>(Scope{outside, {}});
  for (size_t i = 0; i < values.size(); ++i) assign(*statement.targets[i], std::move(values[i]));
  const Flow flow = run(*statement.body);
  scope_ = outside;
  return flow;
}

Interpreter::Flow Interpreter::run_for(const Statement& statement) {
  return run_loop(statement, iterate(eval(*statement.value), budget), scope_, 0);
}

Interpreter::Flow Interpreter::run_loop(const Statement& statement, std::vector<Value> items, std::shared_ptr<Scope> outside,
                                        int64_t depth0) {
  LoopState loop;
  loop.node = &statement;
  loop.outside = outside;
  loop.source = std::move(items);
  loop.depth0 = depth0;
  Object* object = make_object(Object::Type::loop);
  object->state = &loop;
  const auto before = scope_;
  bool completed = false;  // one pass of the body: what for-else asks, in Jinja, is not whether there was an element
  while (advance(loop)) {
    loop.previous = std::move(loop.current);
    loop.current = std::move(loop.ready.front());
    loop.ready.pop_front();
    ++loop.index0;
    budget.spend(1);
    scope_ = std::make_shared<Scope>(Scope{outside, {}});
    assign(*statement.target, loop.current);
    scope_->set(program_.loop, Value(object));
    const Flow flow = run(*statement.body);
    if (flow == Flow::leave_loop) break;
    completed |= flow == Flow::normal;
  }
  object->state = nullptr;
  scope_ = before;
  if (completed || statement.branches.empty()) return Flow::normal;
  return run_in_scope(statement.branches[0].body);
}

bool Interpreter::advance(LoopState& loop) {
  while (loop.ready.empty() && take_element(loop)) {
  }
  return !loop.ready.empty();
}

bool Interpreter::take_element(LoopState& loop) {
  if (loop.position == loop.source.size()) return false;
  Value item = loop.source[loop.position++];
  if (loop.node->condition != nullptr) {
    const auto before = scope_;
    scope_ = std::make_shared<Scope>(Scope{loop.outside, {}});
    assign(*loop.node->target, item);
    const bool passes = is_true(eval(*loop.node->condition));
    scope_ = before;
    if (!passes) return true;
  }
  loop.ready.push_back(std::move(item));
  return true;
}

void Interpreter::define_macro(const Statement& statement) {
  Callable macro;
  macro.name = statement.macro->name;
  macro.macro = statement.macro.get();
  macro.scope = scope_;
  assign(*statement.target, Value(std::make_shared<const Callable>(std::move(macro))));
}

void Interpreter::run_call_block(const Statement& statement) {
  Callable caller;
  caller.macro = statement.macro.get();
  caller.scope = scope_;
  const Expr& call_expr = *statement.value;
  const Value callee = eval(*call_expr.children[0]);
  Arguments arguments = eval_arguments(call_expr);
  arguments.named.emplace_back("caller", Value(std::make_shared<const Callable>(std::move(caller))));
  write(call(callee, arguments));
}

void Interpreter::assign(const Expr& target, Value value) {
  if (target.kind == Expr::Kind::name) {
    budget.spend(1 + scope_->variables.size() / 32);
    scope_->set(target.symbol, std::move(value));
  } else if (target.kind == Expr::Kind::space_item) {
    const Value space = eval(*target.children[0]);
    check_defined(space);
    if (space.object() == nullptr || space.object()->type != Object::Type::space) {
      raise("cannot assign attribute on non-namespace object");
    }
    set_space_item(*space.object(), target.name, std::move(value), budget);
  } else {
    if (value.sequence() == nullptr && value.text() == nullptr && value.dict() == nullptr && !value.is_undefined()) {
      raise("cannot unpack non-iterable ", type_name(value), " object");
    }
    std::vector<Value> parts = iterate(value, budget);
    const size_t n = target.children.size();
    if (parts.size() > n) raise("too many values to unpack (expected ", n, ")");
    if (parts.size() < n) raise("not enough values to unpack (expected ", n, ", got ", parts.size(), ")");
    for (size_t i = 0; i < n; ++i) assign(*target.children[i], std::move(parts[i]));
  }
}

}  // namespace lockstep::jinja
