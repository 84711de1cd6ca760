#include "telemetry/progress.h"

#include <unistd.h>

#include <cstdio>

namespace lockstep {

namespace {

constexpr double kTerminalInterval_s = 0.5, kLogInterval_s = 30;

std::string clock_text(double seconds) {
  const auto total = static_cast<int64_t>(seconds + 0.5);
  char text[32];
  if (total >= 3600)
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", static_cast<long long>(total / 3600),
                  static_cast<long long>(total / 60 % 60), static_cast<long long>(total % 60));
  else
    std::snprintf(text, sizeof text, "%lld:%02lld", static_cast<long long>(total / 60), static_cast<long long>(total % 60));
  return text;
}

}  // namespace

std::string progress_line(int64_t n_lines, int64_t n_done_before, int64_t n_done, int64_t n_tokens, double elapsed_s) {
  const int64_t done = n_done_before + n_done;
  char text[128];
  std::snprintf(text, sizeof text, "%lld/%lld lines  %lld%%  %.0f tok/s  ETA ", static_cast<long long>(done),
                static_cast<long long>(n_lines), static_cast<long long>(n_lines > 0 ? 100 * done / n_lines : 100),
                elapsed_s > 0 ? static_cast<double>(n_tokens) / elapsed_s : 0.0);
  const double left = static_cast<double>(n_lines - done);
  return text + (n_done > 0 ? clock_text(left * elapsed_s / static_cast<double>(n_done)) : std::string("?"));
}

Progress::Progress(bool on, int64_t n_lines, int64_t n_done_before)
    : on_(on), terminal_(::isatty(STDERR_FILENO) != 0), n_lines_(n_lines), n_done_before_(n_done_before) {
  next_s_ = terminal_ ? 0 : kLogInterval_s;
}

void Progress::show(double elapsed_s, int64_t n_done, int64_t n_tokens) {
  if (!on_ || elapsed_s < next_s_) return;
  next_s_ = elapsed_s + (terminal_ ? kTerminalInterval_s : kLogInterval_s);
  const std::string line = progress_line(n_lines_, n_done_before_, n_done, n_tokens, elapsed_s);
  std::fprintf(stderr, terminal_ ? "\r%s\x1b[K" : "%s\n", line.c_str());
  std::fflush(stderr);
  line_open_ = terminal_;
}

void Progress::finish() {
  if (line_open_) std::fputc('\n', stderr);
  line_open_ = false;
}

}  // namespace lockstep
