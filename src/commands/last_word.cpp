#include "commands/last_word.h"

#include "base/error.h"
#include "base/log.h"

namespace lockstep {

void end_all_ranks(MpiSession& mpi, const std::exception& e) {
  const auto* error = dynamic_cast<const Error*>(&e);
  if (error != nullptr)
    log_error(error->what(), " (", error->where.file_name(), ":", error->where.line(), ")");
  else
    log_error(e.what());
  mpi.abort(static_cast<int>(error != nullptr ? error->code : ExitCode::other));
}

}  // namespace lockstep
