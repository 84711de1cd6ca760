// A model on disk, opened without trust: a Hugging Face directory (safetensors) or a GGUF file, seen the same way. Opening
// reads headers only and checks presence, type and shape of every tensor against the config, so that a bad model costs seconds.
// Not for: placing weights on ranks (model/), tokenizing or rendering (text/).
//   auto c = Checkpoint::open(path);   c->read_rows("model.norm.weight", {0, 1}, out);
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/file.h"
#include "checkpoint/model_config.h"
#include "tensor/tensor.h"

namespace lockstep {

struct ModelFile {
  std::string name;  // base name
  uint64_t bytes;
};

struct GgufTokenizer {
  std::string model, pre;            // "gpt2" or "llama"; the name of the pre-tokenizer, "" if the file has none
  std::vector<std::string> tokens;   // [n_tokens]
  std::vector<float> scores;         // [n_tokens] or empty
  std::vector<int32_t> token_types;  // [n_tokens] or empty: 1 normal 2 unknown 3 control 4 user-defined 5 unused 6 byte
  std::vector<std::string> merges;   // "left right"
  std::optional<int64_t> bos_id, eos_id, unk_id, pad_id;  // each < n_tokens
  std::optional<bool> add_bos, add_eos, add_space_prefix;
};

struct CheckpointContent;

class Checkpoint {
 public:
  // A directory, or a .gguf file (any part of a split one). Throws Error (unreadable) naming file and tensor.
  static std::unique_ptr<Checkpoint> open(const std::string& path);

  static std::unique_ptr<Checkpoint> open_random(const std::string& path);  // dummy.h

  explicit Checkpoint(CheckpointContent content);
  ~Checkpoint();
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;

  const ModelConfig& config() const;
  DType natural_dtype() const;        // bf16 where most bytes of the weights are stored so, else f32
  const std::string& format() const;  // "safetensors bf16", "gguf q4_1", ... for the log

  // Tensors by their Hugging Face names, whatever the file format: "model.layers.0.self_attn.q_proj.weight", ...
  // "lm_head.weight" is always there: with tied embeddings it is another name of "model.embed_tokens.weight".
  bool has(const std::string& name) const;
  std::pair<int64_t, int64_t> shape(const std::string& name) const;  // rows, cols; a vector is 1 x n

  // f32 [rows.size(), cols], rows in Hugging Face order. Thread-safe; throws Error (unreadable) when the file fails.
  void read_rows(const std::string& name, Range rows, float* out) const;
  // The same, with the file's bytes from `fetch`: the same calls ask it for the same pieces, of at most 4 MiB or one row.
  void read_rows(const std::string& name, Range rows, float* out, const FetchBytes& fetch) const;

  const std::vector<ModelFile>& files() const;       // the files used
  const std::vector<std::string>& warnings() const;  // ignored files, extra tensors, an lm_head that differs while tied, ...
  std::vector<std::string> identity_paths() const;  // all files that define the model (weights, config, tokenizer): for digests

  // Text parts, for text/ to read.
  std::optional<GgufTokenizer> gguf_tokenizer() const;
  std::string tokenizer_json() const;         // "" if none
  std::string tokenizer_config_json() const;  // "" if none
  // chat_template.jinja, else tokenizer_config.json (a string, or the "default" of a list), else GGUF metadata.
  std::optional<std::string> chat_template() const;

 private:
  std::unique_ptr<const CheckpointContent> content_;
};

}  // namespace lockstep
