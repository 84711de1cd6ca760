// A file of verdicts: refused, or taken; what was taken comes back as it was written.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "ops/cuda/gemm_verdicts.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto verdicts = lockstep::verdicts_of({reinterpret_cast<const char*>(data), size});
  if (verdicts && lockstep::verdicts_of(lockstep::text_of(*verdicts)) != verdicts) std::abort();
  return 0;
}
