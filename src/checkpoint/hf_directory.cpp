#include "checkpoint/hf_directory.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/json.h"
#include "checkpoint/printable.h"
#include "checkpoint/safetensors.h"

namespace lockstep {

namespace {

using nlohmann::json;

constexpr uint64_t kMaxIndexBytes = uint64_t{64} << 20, kMaxTokenizerConfigBytes = uint64_t{16} << 20;
constexpr size_t kMaxTokenizerConfigValues = size_t{1} << 20;
constexpr const char* kIndexName = "model.safetensors.index.json";

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

bool contains(const std::vector<std::string>& sorted, const std::string& name) {
  return std::binary_search(sorted.begin(), sorted.end(), name);
}

// The files with weights, and which tensor is where if an index says so.
struct Shards {
  std::vector<std::string> names;
  std::optional<WeightIndex> index;
};

Shards find_shards(const std::string& directory, const std::vector<std::string>& names) {
  if (contains(names, kIndexName)) {
    const std::string path = directory + "/" + kIndexName;
    WeightIndex index = parse_weight_index(read_text_file(path, kMaxIndexBytes), path);
    std::vector<std::string> missing;
    for (const auto& shard : index.shards) {
      if (!contains(names, shard)) missing.push_back(shard);
    }
    if (!missing.empty()) fail(ExitCode::unreadable, path, " names files that are missing: ", list_names(missing, "missing"));
    return {index.shards, std::move(index)};
  }
  if (contains(names, "model.safetensors")) return {{"model.safetensors"}, {}};
  std::vector<std::string> found;
  for (const auto& name : names) {
    if (ends_with(name, ".safetensors")) found.push_back(name);
  }
  if (found.size() == 1 && found[0].find("-of-") == std::string::npos) return {found, {}};
  if (!found.empty())
    fail(ExitCode::unreadable, directory, ": no ", kIndexName, " for ", list_names(found, "safetensors files"));
  for (const auto& name : names) {
    if (ends_with(name, ".bin") || ends_with(name, ".pth") || ends_with(name, ".pt")) {
      fail(ExitCode::unreadable, directory, ": no safetensors; pickle files (", name,
           ") are not read, since they can run code");
    }
  }
  fail(ExitCode::unreadable, directory, ": no model.safetensors and no ", kIndexName);
}

StoredType stored_type(const SafetensorsEntry& entry, const std::string& path) {
  const auto name = safetensors_dtype_name(entry.dtype);
  if (name == "F32") return StoredType::f32;
  if (name == "F16") return StoredType::f16;
  if (name == "BF16") return StoredType::bf16;
  fail(ExitCode::unreadable, path, ": tensor ", in_quotes(entry.name), " has dtype ", name,
       "; F32, F16 and BF16 are supported");
}

struct Located {
  const SafetensorsEntry* entry;
  uint32_t file;
  uint64_t data_offset;
};

// All tensors by name. With an index each tensor comes from the shard it names, and nothing else does.
std::unordered_map<std::string, Located> locate(const std::string& directory, const Shards& shards,
                                                const std::vector<File>& files, const std::vector<SafetensorsHeader>& headers,
                                                std::vector<std::string>& extra) {
  std::unordered_map<std::string, Located> where;
  if (!shards.index) {
    for (const auto& entry : headers[0].entries) where.emplace(entry.name, Located{&entry, 0, headers[0].data_offset});
    return where;
  }
  for (const auto& [tensor, shard] : shards.index->entries) {
    const auto& entries = headers[shard].entries;
    const auto at =
        std::lower_bound(entries.begin(), entries.end(), tensor, [](const auto& e, const auto& name) { return e.name < name; });
    if (at == entries.end() || at->name != tensor) {
      fail(ExitCode::unreadable, files[shard].path(), ": no tensor ", in_quotes(tensor), ", which ", directory, "/", kIndexName,
           " says it holds");
    }
    where.emplace(tensor, Located{&*at, shard, headers[shard].data_offset});
  }
  for (size_t i = 0; i < headers.size(); ++i) {
    for (const auto& entry : headers[i].entries) {
      const auto at = where.find(entry.name);
      if (at == where.end() || at->second.entry != &entry)
        extra.push_back(entry.name + " (" + files[i].name() + ", not in the index)");
    }
  }
  return where;
}

void bind_tensors(CheckpointContent& content, const std::string& directory,
                  const std::unordered_map<std::string, Located>& where) {
  for (const auto& spec : expected_tensors(content.config)) {
    const auto at = where.find(spec.name);
    if (at == where.end()) {
      fail(ExitCode::unreadable, directory, ": tensor '", spec.name, "' ", shape_text(spec), " is missing",
           spec.name == "lm_head.weight" ? " (tie_word_embeddings is false)" : "");
    }
    const auto& [entry, file, data_offset] = at->second;
    const std::string& path = content.weights[file].path();
    const std::vector<int64_t> wanted = spec.vector ? std::vector{spec.cols} : std::vector{spec.rows, spec.cols};
    if (entry->shape != wanted) {
      fail(ExitCode::unreadable, path, ": tensor '", spec.name, "' has shape ", shape_text(entry->shape),
           ", the config asks for ", shape_text(wanted));
    }
    content.tensors[spec.name] = {file, data_offset + entry->begin, stored_type(*entry, path), spec.rows, spec.cols, 0};
  }
}

bool is_harmless(const std::string& name) { return ends_with(name, ".rotary_emb.inv_freq"); }  // old Llama files carry them

// With tied embeddings a stored lm_head is not used, as in Transformers; say so where it holds something else.
void compare_tied_head(CheckpointContent& content, const Located& head) {
  const StoredTensor& embed = content.tensors.at("model.embed_tokens.weight");
  const auto& entry = *head.entry;
  const std::string ignored = "lm_head.weight is ignored, since tie_word_embeddings is true";
  if (entry.shape != std::vector{embed.rows, embed.cols} || entry.end - entry.begin != embed.bytes()) {
    content.warnings.push_back(ignored + "; its shape or dtype is not that of the embeddings");
    return;
  }
  // Up to 64 MiB in full, else in 64 blocks spread over the matrix: a start must not wait for gigabytes.
  constexpr uint64_t kBlock = uint64_t{1} << 20, kBlocks = 64;
  const uint64_t bytes = embed.bytes(), n_blocks = std::min(kBlocks, (bytes + kBlock - 1) / kBlock);
  std::vector<std::byte> a(kBlock), b(kBlock);
  for (uint64_t i = 0; i < n_blocks; ++i) {
    const uint64_t at = bytes <= kBlock * kBlocks ? i * kBlock : (bytes - kBlock) / (kBlocks - 1) * i;
    const uint64_t n = std::min(kBlock, bytes - at);
    content.weights[embed.file].read(embed.offset + at, std::span(a).first(n));
    content.weights[head.file].read(head.data_offset + entry.begin + at, std::span(b).first(n));
    if (!std::equal(a.begin(), a.begin() + static_cast<int64_t>(n), b.begin())) {
      content.warnings.push_back(ignored + "; it differs from model.embed_tokens.weight");
      return;
    }
  }
}

void note_unused(CheckpointContent& content, const std::unordered_map<std::string, Located>& where,
                 std::vector<std::string> extra) {
  for (const auto& [name, located] : where) {
    if (content.tensors.contains(name) || is_harmless(name)) continue;
    if (name == "lm_head.weight" && content.config.tied_embeddings) {
      compare_tied_head(content, located);
    } else {
      extra.push_back(name);
    }
  }
  std::sort(extra.begin(), extra.end());
  if (!extra.empty()) content.warnings.push_back(list_names(extra, "tensors are not used"));
}

void note_ignored_files(CheckpointContent& content, const std::vector<std::string>& names,
                        const std::vector<std::string>& used) {
  std::vector<std::string> ignored;
  for (const auto& name : names) {
    const bool weights = ends_with(name, ".safetensors") || ends_with(name, ".bin") || ends_with(name, ".pth") ||
                         ends_with(name, ".pt") || ends_with(name, ".gguf");
    if (weights && std::find(used.begin(), used.end(), name) == used.end()) ignored.push_back(name);
  }
  if (!ignored.empty()) content.warnings.push_back(list_names(ignored, "files are ignored"));
}

void read_text_parts(CheckpointContent& content, const std::string& directory, const std::vector<std::string>& names) {
  const auto use = [&](const char* name) {
    if (!contains(names, name)) return std::string();
    return content.text_paths.emplace_back(directory + "/" + name);
  };
  content.tokenizer_json_path = use("tokenizer.json");
  content.tokenizer_config_path = use("tokenizer_config.json");
  if (const std::string path = use("chat_template.jinja"); !path.empty()) {
    content.chat_template = read_text_file(path, kMaxChatTemplateBytes);
  } else if (!content.tokenizer_config_path.empty()) {
    const std::string& config_path = content.tokenizer_config_path;
    content.chat_template =
        chat_template_of(read_text_file(config_path, kMaxTokenizerConfigBytes), config_path, content.warnings);
  }
}

}  // namespace

std::optional<std::string> chat_template_of(const std::string& tokenizer_config, const std::string& origin,
                                            std::vector<std::string>& warnings) {
  const json root = parse_json_object(tokenizer_config, origin, kMaxTokenizerConfigValues);
  const auto found = root.find("chat_template");
  if (found == root.end() || found->is_null()) return std::nullopt;
  const auto checked = [&](const json& text) {
    if (!text.is_string())
      fail(ExitCode::unreadable, origin, ": chat_template is neither a string nor a list of {name, template}");
    if (text.get_ref<const std::string&>().size() > kMaxChatTemplateBytes)
      fail(ExitCode::unreadable, origin, ": chat_template is too long");
    return text.get<std::string>();
  };
  if (!found->is_array()) return checked(*found);
  std::vector<std::string> others;
  for (const auto& item : *found) {
    if (!item.is_object() || !item.contains("name") || !item["name"].is_string() || !item.contains("template")) checked(json());
    if (item["name"] == "default") return checked(item["template"]);
    others.push_back(item["name"].get<std::string>());
  }
  warnings.push_back(origin + ": no chat template is called default; " + list_names(others, "others"));
  return std::nullopt;
}

CheckpointContent open_hf_directory(const std::string& directory, const std::vector<std::string>& names) {
  CheckpointContent content;
  content.format = "safetensors";
  const std::string config_path = directory + "/config.json", generation_path = directory + "/generation_config.json";
  content.config = parse_hf_config(read_text_file(config_path, kMaxConfigBytes), config_path, content.warnings);
  content.text_paths.push_back(config_path);
  if (contains(names, "generation_config.json")) {
    content.config.generation = parse_generation_config(read_text_file(generation_path, kMaxConfigBytes), generation_path,
                                                        content.config.vocab, content.warnings);
    content.text_paths.push_back(generation_path);
  }

  const Shards shards = find_shards(directory, names);
  if (shards.index) content.text_paths.push_back(directory + "/" + kIndexName);
  std::vector<SafetensorsHeader> headers;
  for (const auto& shard : shards.names) {
    content.weights.emplace_back(directory + "/" + shard);
    headers.push_back(read_safetensors_header(content.weights.back()));
  }
  std::vector<std::string> extra;
  const auto where = locate(directory, shards, content.weights, headers, extra);
  bind_tensors(content, directory, where);

  note_unused(content, where, std::move(extra));
  note_ignored_files(content, names, shards.names);
  read_text_parts(content, directory, names);
  return content;
}

}  // namespace lockstep
