// The header of a safetensors file and the index of a sharded model, parsed from bytes without trust: every rule of the format
// is checked (no holes, no overlaps, sizes that fit the shape, duplicate names refused). Memory stays a small multiple of the
// input.
//   auto entries = parse_safetensors_header(json_text, data_bytes, path);
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/file.h"

namespace lockstep {

inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;  // as the format's own reader
inline constexpr size_t kMaxTensorsPerFile = size_t{1} << 20;
inline constexpr size_t kMaxShards = 10'000;

struct SafetensorsEntry {
  std::string name;
  uint8_t dtype = 0;  // for safetensors_dtype_name
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // bytes within the data section
};

std::string_view safetensors_dtype_name(uint8_t dtype);  // "BF16", ...

// `json_text`: the header without its length; `data_bytes`: bytes of the file after the header. Sorted by name.
std::vector<SafetensorsEntry> parse_safetensors_header(std::string_view json_text, uint64_t data_bytes,
                                                       const std::string& origin);

struct SafetensorsHeader {
  uint64_t data_offset = 0;               // of the data section within the file
  std::vector<SafetensorsEntry> entries;  // sorted by name
};

SafetensorsHeader read_safetensors_header(const File& file);

struct WeightIndex {
  struct Entry {
    std::string tensor;
    uint32_t shard;  // index into `shards`
  };
  std::vector<std::string> shards;  // base names, in order of first mention
  std::vector<Entry> entries;       // sorted by tensor
};

// model.safetensors.index.json
WeightIndex parse_weight_index(std::string_view json_text, const std::string& origin);

}  // namespace lockstep
