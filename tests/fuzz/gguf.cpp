// A whole GGUF file (in memory): refused with Error (unreadable), or a model of which every tensor can be read.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/content.h"
#include "checkpoint/gguf_model.h"

namespace {

void read_everything(const lockstep::Checkpoint& c) {
  std::vector<float> out;
  for (const auto& spec : lockstep::expected_tensors(c.config())) {
    if (c.shape(spec.name) != std::pair(spec.rows, spec.cols)) std::abort();
    if (spec.rows * spec.cols > 1 << 16) continue;
    out.assign(static_cast<size_t>(spec.rows * spec.cols), 0);
    c.read_rows(spec.name, {0, spec.rows}, out.data());
    c.read_rows(spec.name, {spec.rows - 1, spec.rows}, out.data());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  static const int fd = ::memfd_create("fuzz", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(fd);
  if (::ftruncate(fd, 0) != 0 || ::pwrite(fd, data, size, 0) != static_cast<ssize_t>(size)) std::abort();
  try {
    read_everything(*Checkpoint::open(path));
  } catch (const Error& e) {
    if (e.code != ExitCode::unreadable) std::abort();
  }
  return 0;
}
