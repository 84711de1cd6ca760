// Work on an untrusted file with a library that may crash on it, in a process apart: what goes wrong there ends that process
// only. Not for work whose results are wanted in memory: nothing but the fault comes back. No MPI inside.
//   run_apart("timings.h5", [&] { write_report(options); });
#pragma once

#include <functional>
#include <string>

namespace lockstep {

// Throws the Error that `work` threw (other exceptions as Error (other)), or Error (unreadable) that begins with `what` if the
// process crashed or computed for ten minutes.
void run_apart(const std::string& what, const std::function<void()>& work);

}  // namespace lockstep
