// Renders a template with variables given as JSON: for the tests of the language.
#pragma once

#include <string>

#include "text/jinja_interpreter.h"
#include "text/jinja_json.h"
#include "text/jinja_parser.h"

namespace lockstep::jinja {

// The text, or "error: …".
inline std::string render(const std::string& source, const std::string& variables = "{}") {
  const Program program = parse_template(source);
  try {
    Budget budget;
    Interpreter::Variables named;
    const Value values = read_json(variables, false, budget);
    for (const auto& [key, value] : values.dict()->entries) named.emplace_back(key.text()->bytes, value);
    return Interpreter(program, std::move(named), "2025-01-02 03:04:05").render().bytes;
  } catch (const RenderError& error) {
    return "error: " + error.message;
  }
}

}  // namespace lockstep::jinja
