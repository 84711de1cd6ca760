#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <array>
#include <utility>

#include <dirent.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/signals.h"
#include "checkpoint/content.h"
#include "checkpoint/dummy.h"
#include "checkpoint/gguf_model.h"
#include "checkpoint/hf_directory.h"

namespace lockstep {

namespace {

constexpr uint64_t kMaxTokenizerBytes = uint64_t{256} << 20;
constexpr size_t kMaxDirectoryEntries = 100'000;
constexpr int64_t kBlockBytes = int64_t{4} << 20;  // of one read

std::vector<std::string> list_directory(const std::string& path) {
  std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(path.c_str()), ::closedir);
  if (!directory) fail(ExitCode::unreadable, path, ": the directory can't be read");
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(directory.get())) {
    if (names.size() >= kMaxDirectoryEntries) fail(ExitCode::unreadable, path, ": too many files for a model directory");
    names.emplace_back(entry->d_name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

CheckpointContent open_directory(const std::string& directory) {
  const auto names = list_directory(directory);
  std::vector<std::string> gguf;
  bool safetensors = false;
  for (const auto& name : names) {
    if (name.size() > 5 && name.ends_with(".gguf")) gguf.push_back(name);
    safetensors |= name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json");
  }
  const bool config = std::binary_search(names.begin(), names.end(), "config.json");
  if (!gguf.empty() && !(config && safetensors)) return open_gguf(choose_gguf(directory, gguf));
  if (!config) fail(ExitCode::unreadable, directory, ": no config.json and no .gguf file, so this is not a model");
  return open_hf_directory(directory, names);
}

CheckpointContent open_content(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) fail(ExitCode::unreadable, "model ", path, ": no such file or directory");
  if (S_ISDIR(info.st_mode)) return open_directory(path);
  if (path.ends_with(".safetensors") || path.ends_with(".json")) {
    fail(ExitCode::unreadable, "model ", path, ": give the directory that holds it");
  }
  return open_gguf(path);
}

// Stored row (or element of a vector) of Hugging Face row `r`, see StoredTensor::interleaved_heads.
int64_t interleaved_row(int64_t r, int64_t head_dim) {
  const int64_t half = head_dim / 2, head = r / head_dim, in_head = r % head_dim;
  return head * head_dim + in_head % half * 2 + in_head / half;
}

void read_vector(const StoredTensor& t, const File& file, const FetchBytes& fetch, float* out) {
  const std::byte* bytes = fetch(file, t.offset, static_cast<size_t>(t.row_bytes()));
  if (t.interleaved_heads == 0) return dequantize(t.type, bytes, t.cols, out);
  std::vector<float> stored(static_cast<size_t>(t.cols));
  dequantize(t.type, bytes, t.cols, stored.data());
  for (int64_t i = 0; i < t.cols; ++i) out[i] = stored[static_cast<size_t>(interleaved_row(i, t.cols / t.interleaved_heads))];
}

// Rows in stored order, in large blocks; `place` says where a stored row goes, or nullptr.
template <class Place>
void read_stored_rows(const StoredTensor& t, const File& file, const FetchBytes& fetch, Range rows, const Place& place) {
  const int64_t row_bytes = t.row_bytes();
  const int64_t block_rows =
      std::clamp<int64_t>(kBlockBytes / std::max<int64_t>(row_bytes, 1), 1, std::max<int64_t>(rows.size(), 1));
  for (int64_t begin = rows.begin; begin < rows.end; begin += block_rows) {
    const int64_t n = std::min(block_rows, rows.end - begin);
    const std::byte* block =
        fetch(file, t.offset + static_cast<uint64_t>(begin * row_bytes), static_cast<size_t>(n * row_bytes));
    for (int64_t i = 0; i < n; ++i) {
      if (float* out = place(begin + i)) dequantize(t.type, block + i * row_bytes, t.cols, out);
    }
  }
}

}  // namespace

std::unique_ptr<Checkpoint> Checkpoint::open(const std::string& path) {
  return std::make_unique<Checkpoint>(open_content(path));
}

std::unique_ptr<Checkpoint> Checkpoint::open_random(const std::string& path) {
  return std::make_unique<Checkpoint>(open_dummy(path));
}

Checkpoint::Checkpoint(CheckpointContent content) {
  std::array<uint64_t, 16> bytes_of_type{};
  for (const auto& [name, tensor] : content.tensors) bytes_of_type[static_cast<size_t>(tensor.type)] += tensor.bytes();
  const auto most = std::max_element(bytes_of_type.begin(), bytes_of_type.end()) - bytes_of_type.begin();
  content.natural_dtype = most == static_cast<int>(StoredType::bf16) ? DType::bf16 : DType::f32;
  content.format = concat(content.format, ' ', layout_of(static_cast<StoredType>(most)).name);
  for (const auto& file : content.weights) content.files.push_back({file.name(), file.size()});
  for (const auto& path : content.text_paths) {
    const File file(path);
    content.files.push_back({file.name(), file.size()});
  }
  content_ = std::make_unique<const CheckpointContent>(std::move(content));
}

Checkpoint::~Checkpoint() = default;

const ModelConfig& Checkpoint::config() const { return content_->config; }
DType Checkpoint::natural_dtype() const { return content_->natural_dtype; }
const std::string& Checkpoint::format() const { return content_->format; }
const std::vector<ModelFile>& Checkpoint::files() const { return content_->files; }
const std::vector<std::string>& Checkpoint::warnings() const { return content_->warnings; }
std::optional<GgufTokenizer> Checkpoint::gguf_tokenizer() const { return content_->gguf_tokenizer; }
std::optional<std::string> Checkpoint::chat_template() const { return content_->chat_template; }

namespace {

const StoredTensor* find(const CheckpointContent& content, const std::string& name) {
  const bool tied_head = content.config.tied_embeddings && name == "lm_head.weight";
  const auto at = content.tensors.find(tied_head ? "model.embed_tokens.weight" : name);
  return at == content.tensors.end() ? nullptr : &at->second;
}

const StoredTensor& tensor_of(const CheckpointContent& content, const std::string& name) {
  const StoredTensor* tensor = find(content, name);
  check(tensor != nullptr, "the model has no tensor '", name, "'");
  return *tensor;
}

}  // namespace

bool Checkpoint::has(const std::string& name) const { return find(*content_, name) != nullptr; }

std::pair<int64_t, int64_t> Checkpoint::shape(const std::string& name) const {
  const StoredTensor& tensor = tensor_of(*content_, name);
  return {tensor.rows, tensor.cols};
}

void Checkpoint::read_rows(const std::string& name, Range rows, float* out) const {
  std::vector<std::byte> bytes;
  read_rows(name, rows, out, [&bytes](const File& file, uint64_t offset, size_t n) {
    if (bytes.size() < n) bytes.resize(n);
    file.read(offset, std::span(bytes).first(n));
    return bytes.data();
  });
}

void Checkpoint::read_rows(const std::string& name, Range rows, float* out, const FetchBytes& fetch) const {
  const StoredTensor& t = tensor_of(*content_, name);
  check(0 <= rows.begin && rows.begin <= rows.end && rows.end <= t.rows, "rows ", rows.begin, "..", rows.end, " of ", t.rows,
        " of ", name);
  if (rows.size() == 0) return;
  leave_if_stopped();
  if (content_->dummy) return dummy_rows(name, name.ends_with("norm.weight"), rows, t.cols, out);
  const File& file = content_->weights[t.file];
  if (t.rows == 1) return read_vector(t, file, fetch, out);
  if (t.interleaved_heads == 0) {
    return read_stored_rows(t, file, fetch, rows, [&](int64_t r) { return out + (r - rows.begin) * t.cols; });
  }
  // Whole heads are read: their rows are a permutation of each other.
  const int64_t head_dim = t.rows / t.interleaved_heads, half = head_dim / 2;
  const Range heads = {rows.begin / head_dim, (rows.end + head_dim - 1) / head_dim};
  read_stored_rows(t, file, fetch, {heads.begin * head_dim, heads.end * head_dim}, [&](int64_t stored) -> float* {
    const int64_t in_head = stored % head_dim, r = stored - in_head + in_head % 2 * half + in_head / 2;
    return r >= rows.begin && r < rows.end ? out + (r - rows.begin) * t.cols : nullptr;
  });
}

std::vector<std::string> Checkpoint::identity_paths() const {
  std::vector<std::string> paths;
  for (const auto& file : content_->weights) paths.push_back(file.path());
  paths.insert(paths.end(), content_->text_paths.begin(), content_->text_paths.end());
  return paths;
}

std::string Checkpoint::tokenizer_json() const {
  const std::string& path = content_->tokenizer_json_path;
  if (path.empty() && content_->dummy) return dummy_tokenizer_json(content_->config.vocab);
  return path.empty() ? "" : read_text_file(path, kMaxTokenizerBytes);
}

std::string Checkpoint::tokenizer_config_json() const {
  const std::string& path = content_->tokenizer_config_path;
  return path.empty() ? "" : read_text_file(path, kMaxTokenizerBytes);
}

}  // namespace lockstep
