// A model in GGUF, single or split: metadata become the config and the tokenizer, tensors get their Hugging Face names.
// What the format says differently: q and k rows of the llama architecture are permuted (undone by Checkpoint::read_rows),
// llama3 scaling is the tensor rope_freqs.weight, a missing output.weight means tied embeddings, biases exist if their tensors
// do.
//   CheckpointContent c = open_gguf("model-00002-of-00003.gguf");   // any part; all must be there
#pragma once

#include <string>
#include <vector>

#include "checkpoint/content.h"

namespace lockstep {

CheckpointContent open_gguf(const std::string& path);

// Of a directory's .gguf files: the one to open, which is the first part of a split one. Throws Error (unreadable) listing
// them where there are several models.
std::string choose_gguf(const std::string& directory, const std::vector<std::string>& gguf_names);

}  // namespace lockstep
