// A fake job that is made to be killed: journal_crash_writer OUT N_LINES N_WRITERS SEED FD writes the numbers (int32) of
// the lines that commit() reported to FD. crash_test.cpp kills it.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "tests/journal/fake_job.h"

int main(int argc, char** argv) {
  using namespace lockstep;
  if (argc != 6) return 2;
  try {
    const int fd = std::atoi(argv[5]);
    run_fake_job(argv[1], {.n_lines = std::atoi(argv[2]),
                           .n_writers = std::atoi(argv[3]),
                           .seed = std::strtoull(argv[4], nullptr, 10),
                           .acknowledge = [fd](std::span<const int> lines) {
                             if (::write(fd, lines.data(), lines.size_bytes()) < 0) ::_exit(3);
                           }});
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}
