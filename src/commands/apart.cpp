#include "commands/apart.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "base/durable_file.h"
#include "base/error.h"

namespace lockstep {

namespace {

constexpr rlim_t kCpuSeconds = 600;

// The child's whole life: its fault goes into the pipe as exit code and message.
[[noreturn]] void live_apart(int pipe, const std::function<void()>& work) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGINT, SIGTERM, SIGUSR1}) ::signal(signal, SIG_DFL);
  const rlimit no_core{0, 0}, cpu{kCpuSeconds, kCpuSeconds};
  ::setrlimit(RLIMIT_CORE, &no_core);
  ::setrlimit(RLIMIT_CPU, &cpu);
  ExitCode code = ExitCode::done;
  std::string message;
  try {
    work();
  } catch (const Error& e) {
    code = e.code, message = e.what();
  } catch (const std::exception& e) {
    code = ExitCode::other, message = e.what();
  }
  const int number = static_cast<int>(code);
  const bool told =
      try_write_all(pipe, {reinterpret_cast<const char*>(&number), sizeof number}) == 0 && try_write_all(pipe, message) == 0;
  std::fflush(nullptr);
  ::_exit(told ? 0 : 1);
}

std::string read_all(int pipe) {
  std::string text;
  char part[4096];
  for (;;) {
    const ssize_t n = ::read(pipe, part, sizeof part);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return text;
    text.append(part, static_cast<size_t>(n));
  }
}

}  // namespace

void run_apart(const std::string& what, const std::function<void()>& work) {
  int ends[2];
  check(::pipe2(ends, O_CLOEXEC) == 0, "pipe: ", std::strerror(errno));
  FileHandle reading(ends[0]), writing(ends[1]);
  std::fflush(nullptr);
  const pid_t child = ::fork();
  check(child >= 0, "fork: ", std::strerror(errno));
  if (child == 0) live_apart(writing.get(), work);
  writing.close();
  const std::string told = read_all(reading.get());
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }

  if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGINT || WTERMSIG(status) == SIGTERM || WTERMSIG(status) == SIGUSR1))
    fail(ExitCode::other, what, ": stopped by ", ::strsignal(WTERMSIG(status)));
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || told.size() < sizeof(int))
    fail(ExitCode::unreadable, what, ": damaged so that reading it crashed (",
         WIFSIGNALED(status) ? ::strsignal(WTERMSIG(status)) : "no answer", ")");
  int number = 0;
  std::memcpy(&number, told.data(), sizeof number);
  if (number != 0) fail(static_cast<ExitCode>(number), told.substr(sizeof number));
}

}  // namespace lockstep
