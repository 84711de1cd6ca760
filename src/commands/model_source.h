// The model of a run as this rank sees it: opened, identified, with the sizes that the options and the machine leave to decide.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "cli.h"
#include "comm/communicator.h"
#include "engine/language.h"

namespace lockstep {

struct ModelSource {
  std::unique_ptr<Checkpoint> checkpoint;
  DType dtype = DType::f32;
  int64_t max_model_len = 0;
  std::string name;                                        // as the answers' `model` says it
  std::vector<std::pair<std::string, std::string>> files;  // base name, digest: of every file that defines it
  std::string digest;                                      // of all of them
  RequestDefaults defaults;                                // of the command line; its chat template read from its file
};

// Reads headers and small files only; `files` and `digest` are empty yet.
ModelSource open_model(const RunOptions& options);

// Collective over the ranks of a node: the digests of the model's files, each file read once by one of them, in large reads one
// after the other (its pages are then in the node's page cache for loading).
void identify(ModelSource& model, Communicator& node);

}  // namespace lockstep
