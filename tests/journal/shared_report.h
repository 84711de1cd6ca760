// What a child process tells its parent, in memory they share.
#pragma once

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <new>
#include <span>

#include "base/error.h"

namespace lockstep {

struct Report {
  int64_t n_calls = 0;
  bool finished = false;
  int n_acknowledged = 0;
  int acknowledged[4096] = {};
  char message[1024] = {};

  void acknowledge(std::span<const int> lines) {
    for (const int line : lines) acknowledged[n_acknowledged++ % 4096] = line;
  }
  void say(const char* text) { std::snprintf(message, sizeof message, "%s", text); }
  std::span<const int> lines() const { return {acknowledged, static_cast<size_t>(n_acknowledged)}; }
};

class SharedReport {
 public:
  SharedReport() {
    void* memory = ::mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(memory != MAP_FAILED, "mmap");
    report_ = new (memory) Report;
  }
  ~SharedReport() { ::munmap(report_, sizeof(Report)); }
  SharedReport(const SharedReport&) = delete;
  SharedReport& operator=(const SharedReport&) = delete;
  Report& operator*() { return *report_; }

 private:
  Report* report_;
};

// The exit status of a child that runs `body`; -1 where a signal ended it.
inline int in_child(const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  check(child > 0 && ::waitpid(child, &status, 0) == child, "fork");
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace lockstep
