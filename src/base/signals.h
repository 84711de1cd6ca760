// Being asked to stop: SIGUSR1, SIGTERM and SIGINT set a flag that the run looks at once a step. A second one ends the process
// at once, by the signal's default action. SIGPIPE is ignored: a write to a closed pipe is an error of that write.
//   catch_stop_signals(); ... if (stop_requested()) ...   in long work outside the steps: leave_if_stopped();
#pragma once

namespace lockstep {

void catch_stop_signals();

bool stop_requested();
int stop_signal();               // its number, 0 where none came
const char* stop_signal_name();  // "SIGTERM", or "" where none came

// For long work that may be given up between two pieces and done again later (digests, loading, scans, the merge): throws
// Error (stopped) where a stop signal came more than `patience_s` ago. What is all but done may take a little patience.
void leave_if_stopped(double patience_s = 0);

}  // namespace lockstep
