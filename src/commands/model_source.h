// The model of a run as this rank sees it: opened, identified, with the sizes that the options and the machine leave to decide.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "cli.h"
#include "engine/language.h"

namespace lockstep {

struct ModelSource {
  std::unique_ptr<Checkpoint> checkpoint;
  DType dtype = DType::f32;
  int64_t max_model_len = 0;
  std::string name;                                        // as the answers' `model` says it
  std::vector<std::pair<std::string, std::string>> files;  // base name, digest: of every file that defines the model
  std::string digest;                                      // of all of them
  RequestDefaults defaults;                                // of the command line; its chat template read from its file
};

// Reads every byte of the model's files once for the digests (they are then in the page cache for loading).
ModelSource open_model(const RunOptions& options);

}  // namespace lockstep
