// MPI's return codes become errors at the call. Only for comm/'s own .cpp files: no other header of the project includes mpi.h.
//   mpi_check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
#pragma once

#define OMPI_SKIP_MPICXX 1  // the C interface only: the old C++ one needs a library of its own
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <string>

#include "base/error.h"

namespace lockstep {

inline std::string mpi_error_text(int code) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return concat("MPI error ", code);
  return {text, static_cast<size_t>(length)};
}

template <class... Parts>
void mpi_check(Located<int> code, const Parts&... what) {
  if (code.value != MPI_SUCCESS) [[unlikely]]
    throw Error(ExitCode::communication, concat(what..., ": ", mpi_error_text(code.value)), code.where);
}

}  // namespace lockstep
