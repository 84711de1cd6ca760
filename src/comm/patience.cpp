#include "comm/patience.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string_view>

namespace lockstep {

double comm_timeout_s() {
  const char* variable = std::getenv("LOCKSTEP_COMM_TIMEOUT_S");
  if (variable == nullptr || *variable == '\0') return 0;
  const std::string_view text = variable;
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(seconds) || seconds < 0)
    fail(ExitCode::usage, "LOCKSTEP_COMM_TIMEOUT_S=", text, ": a number of seconds >= 0 is expected");
  return seconds;
}

}  // namespace lockstep
