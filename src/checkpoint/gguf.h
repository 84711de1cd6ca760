// The header of one GGUF file (version 2 or 3): metadata and where the tensors lie. Counts, lengths, offsets and types are
// checked against the file before anything is allocated. Not for: what the metadata mean (gguf_model.h).
//   GgufHeader h = read_gguf_header(file);   h.metadata.find("general.architecture")
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "checkpoint/file.h"
#include "checkpoint/stored_type.h"

namespace lockstep {

// Integers of all widths are one type: what a field may hold is for its reader to check (unsigned values above 2^63 - 1 are
// refused). Arrays of other element types than these are refused.
using GgufValue = std::variant<int64_t, double, bool, std::string, std::vector<int64_t>, std::vector<double>, std::vector<bool>,
                               std::vector<std::string>>;

struct GgufTensor {
  std::string name;
  std::vector<int64_t> shape;  // outermost first, as Hugging Face writes it: [rows, cols] or [n]
  uint32_t type = 0;           // ggml's number
  uint64_t offset = 0;         // within the file
};

struct GgufHeader {
  std::map<std::string, GgufValue, std::less<>> metadata;
  std::vector<GgufTensor> tensors;  // in file order; names are unique
};

// Throws Error (unreadable) with path and tensor or key.
GgufHeader read_gguf_header(const File& file);

std::string gguf_type_name(uint32_t type);
std::optional<StoredType> gguf_stored_type(uint32_t type);  // nothing where it can't be read
inline constexpr std::string_view kGgufSupported =
    "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL and IQ4_XS are supported";

}  // namespace lockstep
