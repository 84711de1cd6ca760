#include "checkpoint/dummy.h"

#include <sys/stat.h>

#include "base/hash.h"
#include "base/pieces.h"
#include "checkpoint/hf_config.h"

namespace lockstep {

namespace {

uint64_t mixed(uint64_t x) {  // splitmix64
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

}  // namespace

CheckpointContent open_dummy(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) fail(ExitCode::unreadable, "model ", path, ": no such file or directory");
  const std::string directory = S_ISDIR(info.st_mode) ? path : path.substr(0, path.find_last_of('/') + 1) + ".";
  const std::string config_path = directory + "/config.json", tokenizer_path = directory + "/tokenizer.json";
  CheckpointContent content;
  content.config = parse_hf_config(read_text_file(config_path, kMaxConfigBytes), config_path, content.warnings);
  content.format = "dummy";
  content.text_paths.push_back(config_path);
  if (::stat(tokenizer_path.c_str(), &info) == 0) {
    content.tokenizer_json_path = tokenizer_path;
    content.text_paths.push_back(tokenizer_path);
  }
  for (const TensorSpec& spec : expected_tensors(content.config))
    content.tensors[spec.name] = {.file = 0, .offset = 0, .type = StoredType::bf16, .rows = spec.rows, .cols = spec.cols};
  content.dummy = true;
  return content;
}

void dummy_rows(const std::string& name, bool is_norm, Range rows, int64_t cols, float* out) {
  const uint64_t seed = hash64(name);
  in_pieces(rows.size(), rows.size() * cols, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const uint64_t row = mixed(seed + static_cast<uint64_t>(rows.begin + i) * 0x9E3779B97F4A7C15u);
      float* to = out + i * cols;
      for (int64_t c = 0; c < cols; ++c) {
        const uint64_t x = (row + static_cast<uint64_t>(c)) * 0xD6E8FEB86659FD93u;
        const auto high = static_cast<int32_t>((x ^ x >> 32) * 0xD6E8FEB86659FD93u >> 40) - (1 << 23);
        to[c] = (is_norm ? 1.0f : 0.0f) + 0.03f * 0x1p-23f * static_cast<float>(high);
      }
    }
  });
}

std::string dummy_tokenizer_json(int64_t vocab) {
  std::string text = R"({"model": {"type": "BPE", "vocab": {)";
  for (int64_t i = 0; i < vocab; ++i) text += concat(i > 0 ? "," : "", "\"<", i, ">\":", i);
  return text + R"(}, "merges": []}})";
}

}  // namespace lockstep
