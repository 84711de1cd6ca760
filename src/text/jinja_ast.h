// A parsed template: plain nodes that own their parts. Made by jinja_parser.h, walked by jinja_interpreter.h; no behaviour
// here.
//   Program program = parse_template("{{ 1 + x }}");   program.body[0].expressions[0]->kind == Expr::Kind::binary
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/jinja_value.h"

namespace lockstep::jinja {

struct FilterEntry;
struct TestEntry;

using Symbol = uint32_t;  // index of a name in Program::names

inline constexpr int kMaxNodeDepth = 100;  // nodes in nodes; the interpreter recurses over them
inline constexpr size_t kMaxTemplateBytes = 256 << 10;

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

enum class Operator : uint8_t { add, sub, mul, div, floor_div, mod, pow, eq, ne, lt, le, gt, ge, in, not_in };

struct Expr {
  enum class Kind : uint8_t {
    constant,     // constant
    name,         // symbol
    list,         // children
    tuple,        // children
    dict,         // children: key, value, key, value …
    attribute,    // children[0] . name
    item,         // children[0] [ children[1] ]
    slice,        // children[0] [ children[1] : children[2] : children[3] ]; the last three may be null
    call,         // children[0] ( arguments )
    filter,       // children[0] | filter ( arguments ); a null child is the captured text of a block
    test,         // children[0] is test ( arguments )
    negate,       // - children[0]
    plus,         // + children[0]
    negation,     // not children[0]
    binary,       // children[0] op[0] children[1]
    comparison,   // children[0] op[0] children[1] op[1] children[2] …
    both,         // children[0] and children[1]
    either,       // children[0] or children[1]
    concat,       // children, joined by ~
    conditional,  // children[0] if children[1] else children[2], which may be null
    space_item,   // assignment only: children[0], a namespace, . name
  };
  Kind kind = Kind::constant;
  int line = 0;
  int depth = 1;
  Symbol symbol = 0;
  Value constant;
  std::string name;
  std::vector<Operator> op;
  std::vector<ExprPtr> children;

  std::vector<ExprPtr> positional;  // arguments of call, filter, test
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star, star_star;  // *list and **dict, may be null
  const FilterEntry* filter = nullptr;
  const TestEntry* test = nullptr;
};

struct Statement;
using Body = std::vector<Statement>;

struct Parameter {
  Symbol symbol;
  std::string name;
  ExprPtr fallback;  // may be null
};

// A macro, or the body of {% call %}.
struct MacroNode {
  std::string name;
  std::vector<Parameter> parameters;
  Body body;
  bool takes_varargs = false, takes_kwargs = false, takes_caller = false;  // the body names them
};

struct Branch {
  ExprPtr condition;  // null: else
  Body body;
};

struct Statement {
  enum class Kind : uint8_t {
    output,        // expressions
    set,           // target = value
    set_block,     // target = captured body, through `value` if that (a filter) is there
    for_loop,      // for target in value if condition: body, else branches[0]
    if_chain,      // branches
    macro,         // macro
    call_block,    // value (a call) with the macro as caller
    filter_block,  // captured body through value
    with,          // targets and expressions, body
    scope,         // body in a scope of its own ({% generation %})
    break_loop,
    continue_loop,
  };
  Kind kind = Kind::output;
  int line = 0;
  ExprPtr target, value, condition;
  std::vector<ExprPtr> targets, expressions;
  bool recursive = false;
  std::vector<Branch> branches;
  std::unique_ptr<MacroNode> macro;
  std::unique_ptr<Body> body;
};

struct Program {
  Body body;
  std::vector<std::string> names;  // by Symbol
  std::unordered_map<std::string, Symbol> symbols;
  // Every macro's `loop`, `caller` and so on are names like others; these are asked for often.
  Symbol loop = 0, caller = 0, varargs = 0, kwargs = 0;
};

}  // namespace lockstep::jinja
