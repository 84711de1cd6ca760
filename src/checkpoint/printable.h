// Text that comes from a file, made fit for a message: valid UTF-8, no control characters (which could drive a terminal),
// short.
//   fail(ExitCode::unreadable, path, ": tensor ", in_quotes(name), " is missing");
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

std::string printable(std::string_view text);
std::string in_quotes(std::string_view text);  // 'text'

}  // namespace lockstep
