// Rotary position embedding: the table of cosines and sines that ops rotate by.
// Source: Su et al., "RoFormer", arXiv:2104.09864; llama3 scaling as in Transformers' modeling_rope_utils.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/model_config.h"

namespace lockstep {

// [head_dim / 2] f32: theta^(-2i / head_dim), scaled as the model asks.
std::vector<float> inverse_frequencies(const RopeConfig& rope, int64_t head_dim);

// [n_positions, head_dim] f32: head_dim / 2 cosines, then as many sines, of position * inverse frequency (the product in f32,
// as Transformers does). Computed by our own functions, so that the bits don't depend on the machine's libm.
std::vector<float> rope_table(const RopeConfig& rope, int64_t head_dim, int64_t n_positions);

}  // namespace lockstep
