// The guard of the interpreter's recursion, shared by jinja_interpreter.cpp, jinja_eval.cpp and jinja_macros.cpp.
//   const Deeper deeper(*this);
#pragma once

#include "text/jinja_interpreter.h"

namespace lockstep::jinja {

struct Interpreter::Deeper {
  explicit Deeper(Interpreter& i) : interpreter(i) {
    if (++i.depth_ > kMaxDepth) {
      --i.depth_;
      raise("the template calls itself too deeply");
    }
  }
  ~Deeper() { --interpreter.depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;
  Interpreter& interpreter;
};

}  // namespace lockstep::jinja
