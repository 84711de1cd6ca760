// What an opened model is before its weights are read: the two readers (hf_directory.h, gguf_model.h) fill this plain struct,
// and Checkpoint serves it. Also the rules both share: limits of a config, the tensors a config asks for.
//   CheckpointContent c = open_hf_directory(path);
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/file.h"
#include "checkpoint/model_config.h"
#include "checkpoint/stored_type.h"

namespace lockstep {

struct StoredTensor {
  uint32_t file = 0;    // index into CheckpointContent::weights
  uint64_t offset = 0;  // of the first byte within that file
  StoredType type = StoredType::f32;
  int64_t rows = 0, cols = 0;  // a vector is 1 x n
  // GGUF of the llama architecture keeps q and k for interleaved RoPE: within each of this many heads, stored row 2i + j is
  // Hugging Face's row j * head_dim / 2 + i. 0: rows are in Hugging Face order.
  int64_t interleaved_heads = 0;

  int64_t row_bytes() const { return cols / layout_of(type).values * layout_of(type).bytes; }
  uint64_t bytes() const { return static_cast<uint64_t>(rows) * static_cast<uint64_t>(row_bytes()); }
};

struct CheckpointContent {
  ModelConfig config;
  std::string format;  // "safetensors" or "gguf"; Checkpoint adds the type of most bytes
  std::vector<File> weights;
  std::unordered_map<std::string, StoredTensor> tensors;  // by Hugging Face name: exactly what the config asks for
  std::vector<std::string> text_paths;                    // config and tokenizer files that were used
  std::vector<std::string> warnings;
  std::optional<GgufTokenizer> gguf_tokenizer;
  std::string tokenizer_json_path, tokenizer_config_path;  // "" if none
  std::optional<std::string> chat_template;
  bool dummy = false;  // no weights: values are made up (dummy.h)
  // set by Checkpoint
  DType natural_dtype = DType::f32;
  std::vector<ModelFile> files;
};

inline constexpr uint64_t kMaxChatTemplateBytes = uint64_t{1} << 20;

// Sizes within limits, heads a multiple of kv heads, head_dim even, finite positive numbers. Throws Error (unreadable); the
// message begins with `origin` and calls fields as Hugging Face does.
void check_model_config(const ModelConfig& config, const std::string& origin);

struct TensorSpec {
  std::string name;
  int64_t rows, cols;
  bool vector;  // one dimension; rows is 1
};

// Every tensor the model needs. With tied embeddings without lm_head.weight. `config` has been checked.
std::vector<TensorSpec> expected_tensors(const ModelConfig& config);

std::string shape_text(const std::vector<int64_t>& shape);  // "[64, 96]"
std::string shape_text(const TensorSpec& spec);

// One warning for many names: "3 tensors are not used: a, b, c".
std::string list_names(const std::vector<std::string>& names, const std::string& what);

}  // namespace lockstep
