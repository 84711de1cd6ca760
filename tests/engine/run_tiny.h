// A whole run inside one process: ranks as threads, a tiny model, a journal in a temporary directory. What commands/run.cpp
// does with MPI, for tests of every layout.
//   Records r = run_tiny(model_dir, prompts, {.mesh = {.dp = 1, .pp = 2, .tp = 2}, .lag = 1});   r["custom_id"]
#pragma once

#include <map>
#include <string>
#include <vector>

#include "mesh/mesh.h"
#include "tensor/tensor.h"

namespace lockstep {

struct TinyRun {
  Mesh mesh;
  int lag = -1;  // -1: stages - 1
  int64_t max_batch_tokens = 256, max_sequences = 16, n_pages = 64, n_host_pages = 0, max_model_len = 256;
  int n_threads = 1;
  DType dtype = DType::f32;
  uint64_t seed = 0;
  bool prefix_cache = true;
  int64_t token_unit = 1;
  int ahead = -1;                // -1: as run.cpp has it on CPUs
  bool hold_broadcasts = false;  // until they are flushed
  bool late_first_step = false;  // rank 0's ends when another replica has begun 9 lines or more, which is an error after 20 s
  bool late_gathers = false;     // beside other work, and there when they are ended
};

using Records = std::map<std::string, std::string>;  // custom_id -> the journal's record

// `prompts`: JSONL text.
Records run_tiny(const std::string& model_directory, const std::string& prompts, const TinyRun& run);

}  // namespace lockstep
