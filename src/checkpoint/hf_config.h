// config.json and generation_config.json of a Hugging Face model, in the form transformers 4 wrote (rope_theta, rope_scaling)
// and in that of 5 (rope_parameters). Unknown keys are ignored, missing ones get the family's default; nothing is executed.
//   ModelConfig c = parse_hf_config(text, path, warnings);
#pragma once

#include <string>
#include <vector>

#include "checkpoint/model_config.h"

namespace lockstep {

inline constexpr uint64_t kMaxConfigBytes = uint64_t{4} << 20;

// Both throw Error (unreadable) that begins with `origin`; the config has passed check_model_config.
ModelConfig parse_hf_config(const std::string& text, const std::string& origin, std::vector<std::string>& warnings);

// Token ids outside [0, vocab) are left out, with a warning.
GenerationDefaults parse_generation_config(const std::string& text, const std::string& origin, int64_t vocab,
                                           std::vector<std::string>& warnings);

}  // namespace lockstep
