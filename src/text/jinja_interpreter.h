// Walks a Program and writes the prompt. One object renders once. No input or output, no clock, no attribute of the host:
// templates are as untrusted as requests, and work, text and nesting are limited.
//   Interpreter i(program, variables, clock_text); MarkedText prompt = i.render();
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_call.h"
#include "text/jinja_value.h"

namespace lockstep::jinja {

inline constexpr int kMaxMacroDepth = 64;
inline constexpr int kMaxDepth = 2000;  // nodes in nodes over all macros: about 1 MiB of stack
inline constexpr int64_t kMaxRange = 100'000;

// Variables of one block of the template; found through the parents. Loops make one an iteration.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<Symbol, Value>> variables;

  Value* find(Symbol symbol);
  void set(Symbol symbol, Value value);
};

// A running loop, as `loop` shows it.
struct LoopState {
  const Statement* node = nullptr;
  std::shared_ptr<Scope> outside;
  std::vector<Value> source;
  size_t position = 0;      // of source
  std::deque<Value> ready;  // elements that passed the loop's condition, not yet seen by the body
  int64_t index0 = -1;
  int64_t depth0 = 0;
  Value previous, current;
  std::vector<Value> changed;  // arguments of the last loop.changed()
  bool has_changed = false;
};

class Interpreter {
 public:
  using Variables = std::vector<std::pair<std::string, Value>>;

  Interpreter(const Program& program, Variables variables, std::string clock, int64_t extra_fuel = 0);
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  MarkedText render();  // throws RenderError
  int line() const { return line_; }

  // For filters and functions.
  Budget budget;
  Value call(const Value& callee, Arguments& arguments);
  Object* make_object(Object::Type type);  // lives as long as this
  const std::string& clock() const { return clock_; }
  Value text(MarkedText value) { return make_text(std::move(value), budget); }
  MarkedText to_text(const Value& value) { return jinja::to_text(value, budget); }

 private:
  enum class Flow { normal, leave_loop, next_iteration };
  struct Deeper;

  Flow run(const Body& body);
  Flow run(const Statement& statement);
  Flow run_for(const Statement& statement);
  Flow run_loop(const Statement& statement, std::vector<Value> items, std::shared_ptr<Scope> outside, int64_t depth0);
  bool advance(LoopState& loop);       // fills `ready`; false at the end
  bool take_element(LoopState& loop);  // the next of the source, which may pass; false where there is none
  Flow run_if(const Statement& statement);
  Flow run_with(const Statement& statement);
  void run_call_block(const Statement& statement);
  Flow run_in_scope(const Body& body);
  MarkedText capture(const Body& body);
  void write(const Value& value);
  void assign(const Expr& target, Value value);
  void define_macro(const Statement& statement);

  Value eval(const Expr& expr);
  Value eval_name(const Expr& expr);
  Value eval_dict(const Expr& expr);
  Value eval_binary(const Expr& expr);
  Value eval_comparison(const Expr& expr);
  Value eval_concat(const Expr& expr);
  Value eval_slice(const Expr& expr);
  Value eval_filter(const Expr& expr, const Value* captured);
  Value eval_test(const Expr& expr);
  Arguments eval_arguments(const Expr& expr);
  std::vector<Value> eval_all(const std::vector<ExprPtr>& parts);

  Value attribute(const Value& object, const std::string& name);
  Value loop_attribute(const Object& object, const std::string& name);
  Value call_macro(const Callable& callable, Arguments& arguments);
  Value call_object(Object& object, Arguments& arguments);

  const Program& program_;
  std::string clock_;
  std::shared_ptr<Scope> root_, scope_;
  std::vector<std::unique_ptr<Object>> objects_;
  MarkedText* out_ = nullptr;
  int line_ = 1;
  int depth_ = 0;
  int macro_depth_ = 0;
};

}  // namespace lockstep::jinja
