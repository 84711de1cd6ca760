// What the program says while it runs, on stderr: rank 0 from `info` up, the others from `warning` up; LOCKSTEP_LOG=debug |
// info | warning | error | off sets one level for all ranks. With more than one rank each line says whose it is:
//   12:34:56 [node03 r3/8 d0p1t1] warning: ...
// Results never go here; stdout stays free for them.
//   init_log({.host = "node03", .rank = 3, .size = 8}); log_info("loaded ", n, " tensors");
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace lockstep {

struct LogPlace {
  std::string host = {};
  int rank = 0, size = 1;
  std::string mesh_place = {};  // "d0p1t1", once it is known
};

enum class LogLevel { debug, info, warning, error };

// Again when more is known. Before the first call everything from `info` up is written, without a prefix.
void init_log(const LogPlace& place);

std::string log_prefix(const LogPlace& place);  // "[node03 r3/8 d0p1t1]", empty for a single rank

bool log_enabled(LogLevel level);
void log_line(LogLevel level, std::string_view text);

template <class... Parts>
void log_debug(const Parts&... parts) {
  if (log_enabled(LogLevel::debug)) log_line(LogLevel::debug, concat(parts...));
}
template <class... Parts>
void log_info(const Parts&... parts) {
  if (log_enabled(LogLevel::info)) log_line(LogLevel::info, concat(parts...));
}
template <class... Parts>
void log_warning(const Parts&... parts) {
  if (log_enabled(LogLevel::warning)) log_line(LogLevel::warning, concat(parts...));
}
template <class... Parts>
void log_error(const Parts&... parts) {
  if (log_enabled(LogLevel::error)) log_line(LogLevel::error, concat(parts...));
}

}  // namespace lockstep
