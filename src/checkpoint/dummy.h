// A model of random weights from its config.json alone (--load-format dummy): to measure shapes without their weights. A value
// depends on its tensor's name, row and column, so every layout sees the same model. Without a tokenizer.json the tokens are
// "<0>", "<1>", ...: prompts are then token ids.
#pragma once

#include <string>

#include "checkpoint/content.h"

namespace lockstep {

// path: a directory with a config.json, or that file. Throws Error (unreadable).
CheckpointContent open_dummy(const std::string& path);

// Norm weights near 1, all others about uniform within 0.03 of 0: activations stay in range over many layers.
void dummy_rows(const std::string& name, bool is_norm, Range rows, int64_t cols, float* out);

std::string dummy_tokenizer_json(int64_t vocab);

}  // namespace lockstep
