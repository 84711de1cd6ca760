// Calls: macros, `loop`, joiner and cycler; and the binding of arguments.
#include "base/error.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_interpreter_depth.h"
#include "text/jinja_ops.h"

#include <algorithm>

namespace lockstep::jinja {

void bind_arguments(const Arguments& arguments, std::string_view function, const std::string_view* names, const Value** bound,
                    size_t n_names, size_t n_required) {
  if (arguments.positional.size() > n_names) {
    raise(function, "() takes at most ", n_names, " arguments (", arguments.positional.size(), " given)");
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) bound[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto* at = std::find(names, names + n_names, name);
    if (at == names + n_names) raise(function, "() got an unexpected keyword argument '", name, "'");
    if (bound[at - names] != nullptr) raise(function, "() got multiple values for argument '", name, "'");
    bound[at - names] = &value;
  }
  for (size_t i = 0; i < n_required; ++i) {
    if (bound[i] == nullptr) raise(function, "() missing required argument: '", names[i], "'");
  }
}

Value Interpreter::call(const Value& callee, Arguments& arguments) {
  check_defined(callee);
  if (const Callable* callable = callee.callable()) {
    if (callable->macro != nullptr) return call_macro(*callable, arguments);
    return callable->function(*this, callable->self.value_or(Value()), arguments);
  }
  if (Object* object = callee.object()) return call_object(*object, arguments);
  raise("'", type_name(callee), "' object is not callable");
}

Value Interpreter::call_macro(const Callable& callable, Arguments& arguments) {
  const Deeper deeper(*this);
  const MacroNode& macro = *callable.macro;
  const auto defined_in = callable.scope.lock();
  if (defined_in == nullptr) raise("the macro '", macro.name, "' is called outside of the block that defines it");
  if (++macro_depth_ > kMaxMacroDepth) raise("macros call each other deeper than ", kMaxMacroDepth);

  auto scope = std::make_shared<Scope>(Scope{defined_in, {}});
  const size_t n = macro.parameters.size();
  const size_t n_positional = std::min(n, arguments.positional.size());
  std::vector<bool> given(n, false);
  for (size_t i = 0; i < n_positional; ++i) {
    scope->set(macro.parameters[i].symbol, std::move(arguments.positional[i]));
    given[i] = true;
  }
  if (macro.takes_varargs) {
    std::vector<Value> rest(std::make_move_iterator(arguments.positional.begin() + static_cast<ptrdiff_t>(n_positional)),
                            std::make_move_iterator(arguments.positional.end()));
    scope->set(program_.varargs, make_sequence(std::move(rest), budget, Sequence::Type::tuple));
  } else if (arguments.positional.size() > n) {
    raise("macro '", macro.name, "' takes not more than ", n, " argument(s)");
  }
  Dict rest;
  for (auto& [name, value] : arguments.named) {
    const auto parameter =
        std::find_if(macro.parameters.begin(), macro.parameters.end(), [&](const Parameter& p) { return p.name == name; });
    if (parameter != macro.parameters.end()) {
      const auto i = static_cast<size_t>(parameter - macro.parameters.begin());
      if (given[i]) raise("macro '", macro.name, "' got multiple values for argument '", name, "'");
      scope->set(parameter->symbol, std::move(value));
      given[i] = true;
    } else if (name == "caller" && macro.takes_caller) {
      scope->set(program_.caller, std::move(value));
    } else if (macro.takes_kwargs) {
      rest.set(make_text(name, true), std::move(value), budget);
    } else {
      raise("macro '", macro.name, "' takes no keyword argument '", name, "'");
    }
  }
  if (macro.takes_kwargs) scope->set(program_.kwargs, Value(std::make_shared<const Dict>(std::move(rest))));
  if (macro.takes_caller && scope->find(program_.caller) == nullptr) {
    scope->set(program_.caller, make_undefined("No caller defined"));
  }

  const auto outside = std::exchange(scope_, scope);
  for (size_t i = 0; i < n; ++i) {
    if (given[i]) continue;
    const Parameter& parameter = macro.parameters[i];
    scope->set(parameter.symbol, parameter.fallback != nullptr
                                     ? eval(*parameter.fallback)
                                     : make_undefined("parameter '", parameter.name, "' was not provided"));
  }
  MarkedText written;
  MarkedText* out = std::exchange(out_, &written);
  run(macro.body);
  out_ = out;
  scope_ = outside;
  --macro_depth_;
  return text(std::move(written));
}

Value Interpreter::call_object(Object& object, Arguments& arguments) {
  switch (object.type) {
    case Object::Type::loop: {
      const auto* loop = static_cast<const LoopState*>(object.state);
      if (loop == nullptr || !loop->node->recursive) {
        raise("The loop must have the 'recursive' marker to be called recursively.");
      }
      const auto [items] = bind(arguments, "loop", {"iterable"}, 1);
      if (++macro_depth_ > kMaxMacroDepth) raise("loops call each other deeper than ", kMaxMacroDepth);
      MarkedText written;
      MarkedText* out = std::exchange(out_, &written);
      run_loop(*loop->node, iterate(*items, budget), loop->outside, loop->depth0 + 1);
      out_ = out;
      --macro_depth_;
      return text(std::move(written));
    }
    case Object::Type::joiner:
      return object.position++ == 0 ? make_text("", true) : object.items[0];
    default:
      raise("'", type_name(Value(&object)), "' object is not callable");
  }
}

Value Interpreter::attribute(const Value& value, const std::string& name) {
  if (Object* object = value.object()) {
    if (object->type == Object::Type::loop) return loop_attribute(*object, name);
    if (object->type == Object::Type::cycler) {
      if (name == "current") return object->items[object->position];
      const auto step = [](Interpreter&, const Value& self, Arguments&) {
        Object& cycler = *self.object();
        const size_t at = cycler.position;
        cycler.position = (at + 1) % cycler.items.size();
        return cycler.items[at];
      };
      if (name == "next") return Value(std::make_shared<const Callable>(Callable{name, step, value, nullptr, {}}));
    }
  }
  return get_attribute(value, name, budget);
}

Value Interpreter::loop_attribute(const Object& object, const std::string& name) {
  auto* loop = static_cast<LoopState*>(object.state);
  if (loop == nullptr) raise("a loop is used after its end");
  const auto known_length = [&] {
    if (loop->node->condition == nullptr) return static_cast<int64_t>(loop->source.size());
    while (take_element(*loop)) {
    }
    return loop->index0 + 1 + static_cast<int64_t>(loop->ready.size());
  };
  if (name == "index0") return Value(loop->index0);
  if (name == "index") return Value(loop->index0 + 1);
  if (name == "first") return Value(loop->index0 == 0);
  if (name == "last") return Value(!advance(*loop));
  if (name == "length") return Value(known_length());
  if (name == "revindex") return Value(known_length() - loop->index0);
  if (name == "revindex0") return Value(known_length() - loop->index0 - 1);
  if (name == "depth") return Value(loop->depth0 + 1);
  if (name == "depth0") return Value(loop->depth0);
  if (name == "previtem") return loop->index0 == 0 ? make_undefined("there is no previous item") : loop->previous;
  if (name == "nextitem") return advance(*loop) ? loop->ready.front() : make_undefined("there is no next item");
  const Value self(const_cast<Object*>(&object));
  if (name == "cycle") {
    const auto cycle = [](Interpreter&, const Value& l, Arguments& arguments) {
      if (arguments.positional.empty()) raise("no items for cycling given");
      const auto* state = static_cast<const LoopState*>(l.object()->state);
      const int64_t index0 = state == nullptr ? 0 : state->index0;
      return arguments.positional[static_cast<size_t>(index0) % arguments.positional.size()];
    };
    return Value(std::make_shared<const Callable>(Callable{name, cycle, self, nullptr, {}}));
  }
  if (name == "changed") {
    const auto changed = [](Interpreter& interpreter, const Value& l, Arguments& arguments) {
      auto* state = static_cast<LoopState*>(l.object()->state);
      if (state == nullptr) raise("a loop is used after its end");
      const auto same = [&](const Value& a, const Value& b) { return equal(a, b, interpreter.budget); };
      const bool differs = !state->has_changed || !std::equal(state->changed.begin(), state->changed.end(),
                                                              arguments.positional.begin(), arguments.positional.end(), same);
      state->changed = arguments.positional;
      state->has_changed = true;
      return Value(differs);
    };
    return Value(std::make_shared<const Callable>(Callable{name, changed, self, nullptr, {}}));
  }
  return make_undefined("'jinja2.runtime.LoopContext object' has no attribute '", name, "'");
}

}  // namespace lockstep::jinja
