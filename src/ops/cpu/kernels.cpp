#include "ops/cpu/kernels.h"

#include <string_view>

#include "base/error.h"

namespace lockstep {
namespace {

bool has_avx2() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return false;
#endif
}
bool has_avx512() {
#if defined(__x86_64__)
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#else
  return false;
#endif
}

}  // namespace

const CpuKernels& cpu_kernels(const char* instruction_set) {
  const std::string_view name = instruction_set;
  if (name == "generic") return generic::kKernels;
#if defined(__x86_64__)
  if (name.empty()) return has_avx512() ? avx512::kKernels : has_avx2() ? avx2::kKernels : generic::kKernels;
  const bool known = name == "avx2" || name == "avx512";
  if (known && !(name == "avx2" ? has_avx2() : has_avx512())) {
    fail(ExitCode::usage, "this machine has no ", name, " instructions");
  }
  if (known) return name == "avx2" ? avx2::kKernels : avx512::kKernels;
#else
  if (name.empty()) return generic::kKernels;
#endif
  fail(ExitCode::usage, "instruction set \"", name, "\", expected avx512, avx2 or generic");
}

}  // namespace lockstep
