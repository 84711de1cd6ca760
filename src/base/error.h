// Errors of the program or the machine: exceptions that say what, where in the source, and with which exit code.
// Not for faults of the input: those are values (`result.h`) and end in that line's record.
//   check(q.cols == head_dim, "q head_dim ", q.cols, ", expected ", head_dim);
//   fail(ExitCode::unreadable, path, ": not a GGUF file");
#pragma once

#include <source_location>
#include <sstream>
#include <stdexcept>
#include <string>

namespace lockstep {

// The exit codes of the program; rank 0 returns one after all ranks agreed (README, "Exit codes").
enum class ExitCode : int {
  done = 0,
  other = 1,
  usage = 2,       // usage, layout, or a refusal
  unreadable = 3,  // input or model
  hardware = 10,
  environment = 11,
  communication = 12,
  inconclusive = 13,  // preflight could not tell
  some_failed = 20,   // done, some lines failed
  output_io = 74,
  stopped = 75,  // resume me
  hang = 86,
  rank_lost = 87,
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& what, std::source_location where = std::source_location::current())
      : std::runtime_error(what), code(code), where(where) {}

  ExitCode code;
  std::source_location where;
};

template <class... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return std::move(text).str();
}

// An argument that remembers where it was written, so that variadic functions can report their caller's line.
template <class T>
struct Located {
  T value;
  std::source_location where;
  Located(T value, std::source_location where = std::source_location::current())  // NOLINT: implicit by design
      : value(value), where(where) {}
};

template <class... Parts>
[[noreturn]] void fail(Located<ExitCode> code, const Parts&... parts) {
  throw Error(code.value, concat(parts...), code.where);
}

// An invariant of the program: throws Error (exit code 1) with the caller's file and line.
template <class... Parts>
void check(Located<bool> ok, const Parts&... parts) {
  if (!ok.value) [[unlikely]]
    throw Error(ExitCode::other, concat(parts...), ok.where);
}

}  // namespace lockstep
