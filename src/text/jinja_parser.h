// Template source to a Program. What the language doesn't have, or this interpreter doesn't support (include, extends, block,
// unknown filters …), throws Error (unreadable) with its line, before any prompt is made. No evaluation here.
//   Program program = parse_template(source);
#pragma once

#include <string_view>

#include "text/jinja_ast.h"

namespace lockstep::jinja {

Program parse_template(std::string_view source);

}  // namespace lockstep::jinja
