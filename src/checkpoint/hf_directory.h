// A Hugging Face model directory: config.json, safetensors (one file, or shards by model.safetensors.index.json), tokenizer
// files as text. Only files the index names are read; what else looks like weights is listed in the warnings.
//   CheckpointContent c = open_hf_directory("/models/llama");
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/content.h"

namespace lockstep {

// Throws Error (unreadable) naming file and tensor. `names`: the directory's entries, sorted.
CheckpointContent open_hf_directory(const std::string& directory, const std::vector<std::string>& names);

// The template of a tokenizer_config.json: a string, or the "default" of a list of {name, template}.
std::optional<std::string> chat_template_of(const std::string& tokenizer_config, const std::string& origin,
                                            std::vector<std::string>& warnings);

}  // namespace lockstep
