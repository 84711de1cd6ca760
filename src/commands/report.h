// `lockstep report DIR`: DIR/report.html, a page of plots from what a run measured. Works on a directory whose run was stopped
// or killed, too, and beside one that still goes on.
#pragma once

#include "base/error.h"
#include "cli.h"
#include "comm/mpi_session.h"

namespace lockstep {

// Rank 0 does it alone. Error: unreadable (no timings, or damaged ones), output_io.
ExitCode report(const MpiSession& mpi, const ReportOptions& options);

}  // namespace lockstep
