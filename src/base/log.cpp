#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <memory>

namespace lockstep {

namespace {

spdlog::level::level_enum spd_level(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warning:
      return spdlog::level::warn;
    case LogLevel::error:
      break;
  }
  return spdlog::level::err;
}

const char* word_of(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return "debug: ";
    case LogLevel::info:
      return "";
    case LogLevel::warning:
      return "warning: ";
    case LogLevel::error:
      break;
  }
  return "error: ";
}

struct Log {
  Log() : out("lockstep", std::make_shared<spdlog::sinks::stderr_sink_mt>()) {
    out.set_error_handler([](const std::string&) {});  // a closed stderr doesn't end a run
    set_pattern("");
  }
  void set_pattern(const std::string& prefix) {
    std::string pattern = "%H:%M:%S ";
    for (const char c : prefix) pattern += c == '%' ? "%%" : std::string(1, c);
    out.set_pattern(pattern + (prefix.empty() ? "%v" : " %v"));
    out.flush_on(spdlog::level::debug);
  }
  spdlog::logger out;
};

Log& the_log() {
  static Log log;
  return log;
}

}  // namespace

std::string log_prefix(const LogPlace& place) {
  if (place.size <= 1) return "";
  return concat("[", place.host, " r", place.rank, "/", place.size, place.mesh_place.empty() ? "" : " ", place.mesh_place, "]");
}

void init_log(const LogPlace& place) {
  auto level = place.rank == 0 ? spdlog::level::info : spdlog::level::warn;
  if (const char* variable = std::getenv("LOCKSTEP_LOG"); variable != nullptr && *variable != '\0') {
    const std::string_view name = variable;
    if (name == "debug")
      level = spdlog::level::debug;
    else if (name == "info")
      level = spdlog::level::info;
    else if (name == "warning")
      level = spdlog::level::warn;
    else if (name == "error")
      level = spdlog::level::err;
    else if (name == "off")
      level = spdlog::level::off;
    else
      fail(ExitCode::usage, "LOCKSTEP_LOG=", name, ": debug, info, warning, error or off is expected");
  }
  the_log().out.set_level(level);
  the_log().set_pattern(log_prefix(place));
}

bool log_enabled(LogLevel level) { return the_log().out.should_log(spd_level(level)); }

void log_line(LogLevel level, std::string_view text) { the_log().out.log(spd_level(level), "{}{}", word_of(level), text); }

}  // namespace lockstep
