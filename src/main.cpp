// The MPI session, the command line, and the last resort: an error that no rank expected ends the whole job, since the others
// are waiting in a collective. What a run does: commands/run.cpp.
#include <cstdio>
#include <exception>

#include "base/error.h"
#include "base/log.h"
#include "base/signals.h"
#include "cli.h"
#include "comm/mpi_session.h"
#include "commands/agree.h"
#include "commands/last_word.h"
#include "commands/merge.h"
#include "commands/report.h"
#include "commands/run.h"
#include "version.h"

namespace lockstep {
namespace {

ExitCode dispatch(MpiSession& mpi, const Command& command) {
  switch (command.kind) {
    case Command::Kind::run:
      return run(mpi, command.run);
    case Command::Kind::merge:
      return merge(mpi, command.merge);
    case Command::Kind::report:
      return report(mpi, command.report);
    case Command::Kind::text:
      if (mpi.rank == 0) std::fputs(command.text.c_str(), stdout);
      return ExitCode::done;
  }
  return ExitCode::other;
}

// The same words on every rank, so a fault in them is the same everywhere too.
Command read_command(const MpiSession& mpi, int argc, char** argv) {
  try {
    check_launcher(mpi);
    Command command = parse_command_line(argc, argv);
    for (const std::string& note : command.notes)
      if (mpi.rank == 0) log_info(note);
    return command;
  } catch (const Error& e) {
    throw AgreedError{e.code, e.what()};
  }
}

int run_main(int argc, char** argv) {
  catch_stop_signals();
  MpiSession mpi(&argc, &argv);
  init_log({mpi.host, mpi.rank, mpi.size, ""});
  ExitCode code = ExitCode::other;
  try {
    code = dispatch(mpi, read_command(mpi, argc, argv));
  } catch (const AgreedError& e) {  // every rank knows
    code = e.code;
    if (mpi.rank == 0) e.code == ExitCode::stopped ? log_warning(e.message) : log_error(e.message);
  } catch (const std::exception& e) {
    end_all_ranks(mpi, e);
  }
  return mpi.rank == 0 ? static_cast<int>(code) : 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) { return lockstep::run_main(argc, argv); }
