// What a run costs beside the model: scan, ranges, requests, records, journal, merge, resume, over millions of short lines with
// replicas that give fixed tokens (tests/commands/bookkeeping.h). Not Google Benchmark: each part runs once, in a process of
// its own where a run would, and its memory counts as much as its time.
//   bench_bookkeeping [--lines N] [--replicas N] [--directory DIR]
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>

#include "support/tiny_model.h"
#include "tests/commands/bookkeeping.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

struct Setup {
  int64_t n_lines = 2000000;
  int n_replicas = 4;
  std::string directory = fs::temp_directory_path() / "lockstep_bookkeeping";
  RunOptions options(const std::string& output) const {
    return {.model = directory + "/model", .input = directory + "/input.jsonl", .output = directory + "/" + output};
  }
};

// One part of a run on one row: its time, and the peak of the process's memory during it.
class Table {
 public:
  explicit Table(int64_t n_lines) : n_lines_(n_lines) {}
  static void head() {
    std::printf(
        "| part | lines | wall, s | cpu, s | lines/s (wall) | peak, MiB | bytes a line |\n|---|--:|--:|--:|--:|--:|--:|\n");
  }
  void part(const char* name, const std::function<int64_t()>& work) {
    reset_peak_memory();
    const double wall = wall_s(), cpu = cpu_s();
    const int64_t n = work();
    const double took = wall_s() - wall;
    const auto peak = static_cast<double>(peak_memory());
    std::printf("| %s | %lld | %.2f | %.2f | %.0f | %.0f | %.0f |\n", name, static_cast<long long>(n), took, cpu_s() - cpu,
                static_cast<double>(n) / took, peak / (1 << 20), peak / static_cast<double>(n_lines_));
    std::fflush(stdout);
  }

 private:
  int64_t n_lines_;
};

// `work` in a process of its own, which ends without a word to anybody, as a killed one does.
void in_process(const std::function<void()>& work) {
  const pid_t child = ::fork();
  check(child >= 0, "fork failed");
  if (child == 0) {
    try {
      work();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%s\n", e.what());
      std::_Exit(1);
    }
    std::fflush(stdout);
    std::_Exit(0);
  }
  int status = 0;
  check(::waitpid(child, &status, 0) == child && status == 0, "a part of the benchmark failed");
}

void measure(const Setup& setup) {
  const int64_t n = setup.n_lines;
  fs::remove_all(setup.directory);
  fs::create_directories(setup.directory + "/model");
  write_tiny_model({}, setup.directory + "/model");
  const std::string input = setup.directory + "/input.jsonl";
  write_short_lines(input, 0, n);
  std::printf("%lld lines, %.1f MB, %d replicas in one thread\n\n", static_cast<long long>(n),
              static_cast<double>(fs::file_size(input)) / 1e6, setup.n_replicas);
  std::fflush(stdout);

  Table::head();
  std::fflush(stdout);
  Table table(n);
  in_process([&] { table.part("scan alone", [&] { return int64_t(InputFile::open(input, 0).lines().size()); }); });
  in_process([&] {
    Bookkeeping run(setup.options("whole"), setup.n_replicas);
    table.part("start: model, nothing else", [&] { return 1; });
    table.part("open: scan, plan, epoch, order", [&] { return run.open(), n; });
    table.part("run: ranges, requests, records, journal", [&] { return run.work(n), run.n_done(); });
    table.part("merge: recover, final files", [&] { return run.finish().n_lines; });
    table.part("timings.h5", [&] { return run.write_timings(), n; });
  });
  in_process([&] {
    Bookkeeping run(setup.options("half"), setup.n_replicas);
    run.open();
    run.work(n / 2);
  });
  in_process([&] {
    Bookkeeping run(setup.options("half"), setup.n_replicas);
    table.part("resume: open until the first line could run", [&] { return run.open(), n; });
    table.part("resume: run the rest", [&] { return run.work(n), run.n_done(); });
    table.part("resume: merge", [&] { return run.finish().n_lines; });
    table.part("resume: timings.h5", [&] { return run.write_timings(), n; });
  });
  const auto same = [&](const char* file) {
    return digest_file(setup.directory + "/whole/" + file) == digest_file(setup.directory + "/half/" + file);
  };
  check(same("completions.jsonl") && same("errors.jsonl"), "the resumed run's files differ");
  std::printf("\ncompletions.jsonl: %.1f MB, equal after the resume\n",
              static_cast<double>(fs::file_size(setup.directory + "/whole/completions.jsonl")) / 1e6);
  fs::remove_all(setup.directory);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::Setup setup;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--lines")
      setup.n_lines = std::atoll(value.c_str());
    else if (name == "--replicas")
      setup.n_replicas = std::atoi(value.c_str());
    else if (name == "--directory")
      setup.directory = value + "/lockstep_bookkeeping";
    else
      argc = 0;
  }
  if (argc % 2 == 0 || setup.n_lines < 2 || setup.n_replicas < 1) {
    std::fprintf(stderr, "usage: bench_bookkeeping [--lines N] [--replicas N] [--directory DIR]\n");
    return 2;
  }
  try {
    lockstep::measure(setup);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
