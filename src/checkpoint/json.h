// JSON of a model's text files, read strictly: depth, number of values and duplicate keys are checked while parsing, so that a
// hostile file costs its own size. Not for: safetensors headers and indices, which are too large for a tree (safetensors.h).
//   const nlohmann::json root = parse_json_object(text, path, kConfigValues);
#pragma once

#include <cstddef>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace lockstep {

inline constexpr size_t kMaxJsonDepth = 64;

// Throws Error (unreadable) that begins with `origin`.
nlohmann::json parse_json_object(const std::string& text, const std::string& origin, size_t max_values);

}  // namespace lockstep
