// The progress of a run for people: one line that rewrites itself on a terminal, a line every 30 seconds in a log file.
//   Progress progress(on, n_lines, n_done_before); progress.show(now_s, n_done, n_tokens);   ... progress.finish();
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

// "12/64 lines  19%  1234 tok/s  ETA 0:41"; the ETA is from lines done and still to do since the run began.
std::string progress_line(int64_t n_lines, int64_t n_done_before, int64_t n_done, int64_t n_tokens, double elapsed_s);

class Progress {
 public:
  Progress(bool on, int64_t n_lines, int64_t n_done_before);
  void show(double elapsed_s, int64_t n_done, int64_t n_tokens);  // cheap: prints only when it is time to
  void finish();

 private:
  bool on_, terminal_;
  int64_t n_lines_, n_done_before_;
  double next_s_ = 0;
  bool line_open_ = false;
};

}  // namespace lockstep
