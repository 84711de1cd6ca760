// model.safetensors.index.json: refused with Error (unreadable), or every shard a plain file name.
#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  try {
    const auto index = parse_weight_index({reinterpret_cast<const char*>(data), size}, "fuzz");
    for (const auto& shard : index.shards) {
      if (shard.empty() || shard[0] == '.' || shard.find('/') != std::string::npos) std::abort();
    }
    for (const auto& entry : index.entries) {
      if (entry.shard >= index.shards.size()) std::abort();
    }
  } catch (const Error& e) {
    if (e.code != ExitCode::unreadable) std::abort();
  }
  return 0;
}
