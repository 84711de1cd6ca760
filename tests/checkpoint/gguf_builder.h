// GGUF bytes for tests, well-formed or not: every field can be replaced before the file is put together.
//   GgufBuilder g = small_llama(); g.u32("llama.block_count", 7); d.write("m.gguf", g.build());
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

template <class T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

inline std::string raw_string(std::string_view text) { return raw<uint64_t>(text.size()) + std::string(text); }

struct GgufBuilder {
  struct Tensor {
    std::string name;
    std::vector<uint64_t> dims;  // fastest first, as in the file
    uint32_t type = 0;           // 0: F32
    std::string bytes;
    std::optional<uint64_t> offset = {};  // nothing: after the tensor before
  };
  std::string magic = "GGUF";
  uint32_t version = 3;
  std::vector<std::pair<std::string, std::string>> metadata;  // key, type and value
  std::vector<Tensor> tensors;
  uint64_t alignment = 32;
  int64_t n_tensors = -1, n_keys = -1;  // -1: the true number

  void put(const std::string& key, uint32_t type, const std::string& value) {
    const auto at = std::find_if(metadata.begin(), metadata.end(), [&](const auto& entry) { return entry.first == key; });
    if (at != metadata.end()) {
      at->second = raw(type) + value;
    } else {
      metadata.emplace_back(key, raw(type) + value);
    }
  }
  void u32(const std::string& key, uint32_t value) { put(key, 4, raw(value)); }
  void f32(const std::string& key, float value) { put(key, 6, raw(value)); }
  void text(const std::string& key, std::string_view value) { put(key, 8, raw_string(value)); }
  void strings(const std::string& key, const std::vector<std::string>& values) {
    std::string bytes = raw<uint32_t>(8) + raw<uint64_t>(values.size());
    for (const auto& value : values) bytes += raw_string(value);
    put(key, 9, bytes);
  }
  void i32s(const std::string& key, const std::vector<int32_t>& values) {
    std::string bytes = raw<uint32_t>(5) + raw<uint64_t>(values.size());
    for (const int32_t value : values) bytes += raw(value);
    put(key, 9, bytes);
  }
  void erase(const std::string& key) {
    std::erase_if(metadata, [&](const auto& entry) { return entry.first == key; });
  }
  Tensor& tensor(const std::string& name) {
    return *std::find_if(tensors.begin(), tensors.end(), [&](const auto& t) { return t.name == name; });
  }
  void erase_tensor(const std::string& name) {
    std::erase_if(tensors, [&](const auto& t) { return t.name == name; });
  }
  // F32; value i of the tensor is i.
  void add(const std::string& name, std::vector<uint64_t> dims) {
    uint64_t n = 1;
    for (const uint64_t d : dims) n *= d;
    std::string bytes;
    for (uint64_t i = 0; i < n; ++i) bytes += raw(static_cast<float>(i));
    tensors.push_back({name, std::move(dims), 0, std::move(bytes)});
  }

  std::string header() const {
    std::string out = magic + raw(version) + raw<int64_t>(n_tensors < 0 ? static_cast<int64_t>(tensors.size()) : n_tensors) +
                      raw<int64_t>(n_keys < 0 ? static_cast<int64_t>(metadata.size()) : n_keys);
    for (const auto& [key, value] : metadata) out += raw_string(key) + value;
    uint64_t offset = 0;
    for (const auto& t : tensors) {
      out += raw_string(t.name) + raw(static_cast<uint32_t>(t.dims.size()));
      for (const uint64_t d : t.dims) out += raw(d);
      out += raw(t.type) + raw<uint64_t>(t.offset.value_or(offset));
      offset = (offset + t.bytes.size() + alignment - 1) / alignment * alignment;
    }
    return out;
  }
  std::string build() const {
    std::string out = header();
    const auto pad = [&] { out.resize((out.size() + alignment - 1) / alignment * alignment, '\0'); };
    for (const auto& t : tensors) {
      pad();
      out += t.bytes;
    }
    return out;
  }
};

// One layer, hidden 8, 2 heads over 1 kv head of head_dim 4, ffn 12, vocabulary 6, tied.
inline GgufBuilder small_llama(const std::string& arch = "llama") {
  GgufBuilder g;
  g.text("general.architecture", arch);
  g.u32(arch + ".block_count", 1);
  g.u32(arch + ".context_length", 64);
  g.u32(arch + ".embedding_length", 8);
  g.u32(arch + ".feed_forward_length", 12);
  g.u32(arch + ".attention.head_count", 2);
  g.u32(arch + ".attention.head_count_kv", 1);
  g.f32(arch + ".attention.layer_norm_rms_epsilon", 1e-5f);
  g.text("tokenizer.ggml.model", "gpt2");
  g.text("tokenizer.ggml.pre", "gpt-2");
  g.strings("tokenizer.ggml.tokens", {"<s>", "</s>", "a", "b", "c", "d"});
  g.i32s("tokenizer.ggml.token_type", {3, 3, 1, 1, 1, 1});
  g.strings("tokenizer.ggml.merges", {"a b"});
  g.u32("tokenizer.ggml.bos_token_id", 0);
  g.u32("tokenizer.ggml.eos_token_id", 1);
  g.text("tokenizer.chat_template", "{{ messages }}");
  g.add("token_embd.weight", {8, 6});
  g.add("blk.0.attn_norm.weight", {8});
  g.add("blk.0.attn_q.weight", {8, 8});
  g.add("blk.0.attn_k.weight", {8, 4});
  g.add("blk.0.attn_v.weight", {8, 4});
  g.add("blk.0.attn_output.weight", {8, 8});
  g.add("blk.0.ffn_norm.weight", {8});
  g.add("blk.0.ffn_gate.weight", {8, 12});
  g.add("blk.0.ffn_up.weight", {8, 12});
  g.add("blk.0.ffn_down.weight", {12, 8});
  g.add("output_norm.weight", {8});
  if (arch == "qwen3") {
    g.add("blk.0.attn_q_norm.weight", {4});
    g.add("blk.0.attn_k_norm.weight", {4});
  }
  return g;
}

}  // namespace lockstep
