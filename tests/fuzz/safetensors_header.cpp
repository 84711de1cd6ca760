// Header of a safetensors file, behind 64 bytes of data: refused with Error (unreadable), or every entry within the data.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  constexpr uint64_t kDataBytes = 64;
  try {
    uint64_t covered = 0;
    for (const auto& entry : parse_safetensors_header({reinterpret_cast<const char*>(data), size}, kDataBytes, "fuzz")) {
      if (entry.begin > entry.end || entry.end > kDataBytes) std::abort();
      covered += entry.end - entry.begin;
    }
    if (covered != kDataBytes) std::abort();
  } catch (const Error& e) {
    if (e.code != ExitCode::unreadable) std::abort();
  }
  return 0;
}
