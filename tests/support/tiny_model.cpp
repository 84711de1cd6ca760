#include "support/tiny_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <span>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"
#include "base/philox.h"
#include "base/utf8.h"

namespace lockstep {

namespace {

using json = nlohmann::ordered_json;

constexpr const char* kSpecials[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>"};
constexpr const char* kChatMl =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

struct Tensor {
  std::string name;
  std::vector<int64_t> shape;
  float mean, scale;
};

std::vector<Tensor> tensors_of(const TinyModel& m) {
  std::vector<Tensor> tensors;
  const auto norm = [&](const std::string& name, int64_t n) { tensors.push_back({name + ".weight", {n}, 1, 0.15f}); };
  const auto projection = [&](const std::string& name, int64_t out, int64_t in, bool bias) {
    tensors.push_back({name + ".weight", {out, in}, 0, 1.6f / std::sqrt(static_cast<float>(in))});
    if (bias) tensors.push_back({name + ".bias", {out}, 0, 0.2f});
  };
  const int64_t q = m.n_heads * m.head_dim, kv = m.n_kv_heads * m.head_dim;
  const bool qkv_bias = m.family == "qwen2";
  tensors.push_back({"model.embed_tokens.weight", {m.vocab, m.hidden}, 0, m.tied ? 0.25f : 0.7f});
  for (int64_t i = 0; i < m.n_layers; ++i) {
    const std::string layer = concat("model.layers.", i, '.');
    norm(layer + "input_layernorm", m.hidden);
    projection(layer + "self_attn.q_proj", q, m.hidden, qkv_bias);
    projection(layer + "self_attn.k_proj", kv, m.hidden, qkv_bias);
    projection(layer + "self_attn.v_proj", kv, m.hidden, qkv_bias);
    projection(layer + "self_attn.o_proj", m.hidden, q, false);
    if (m.family == "qwen3") {
      norm(layer + "self_attn.q_norm", m.head_dim);
      norm(layer + "self_attn.k_norm", m.head_dim);
    }
    norm(layer + "post_attention_layernorm", m.hidden);
    projection(layer + "mlp.gate_proj", m.ffn, m.hidden, false);
    projection(layer + "mlp.up_proj", m.ffn, m.hidden, false);
    projection(layer + "mlp.down_proj", m.hidden, m.ffn, false);
  }
  norm("model.norm", m.hidden);
  if (!m.tied) tensors.push_back({"lm_head.weight", {m.vocab, m.hidden}, 0, 0.3f});
  return tensors;
}

int64_t n_values(const Tensor& t) {
  int64_t n = 1;
  for (const int64_t d : t.shape) n *= d;
  return n;
}

uint16_t to_bf16(float value) {  // nearest even; values here are finite and small
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

// Four uniform numbers added come near a normal one and need no library function that might differ between machines. All values
// are representable in bf16, so that the two dtypes hold the same model.
std::string values_of(const Tensor& t, const TinyModel& m) {
  std::string bytes;
  const uint64_t key = m.seed ^ hash64(t.name);
  for (int64_t i = 0; i < n_values(t); ++i) {
    const auto words = philox4x32(key, {static_cast<uint32_t>(i), 0, 0, 0});
    float sum = -2;
    for (const uint32_t w : words) sum += uniform_open(w);
    const uint16_t half = to_bf16(t.mean + t.scale * (sum * 1.7320508f));
    const uint32_t full = static_cast<uint32_t>(half) << 16;
    if (m.dtype == DType::bf16) {
      bytes.append(reinterpret_cast<const char*>(&half), sizeof half);
    } else {
      bytes.append(reinterpret_cast<const char*>(&full), sizeof full);
    }
  }
  return bytes;
}

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  if (!out) fail(ExitCode::output_io, path, ": can't be written");
}

void write_shard(const std::string& path, std::span<const Tensor> tensors, const TinyModel& m) {
  json header = {{"__metadata__", {{"format", "pt"}}}};
  std::string data;
  for (const auto& t : tensors) {
    const size_t begin = data.size();
    data += values_of(t, m);
    header[t.name] = {
        {"dtype", m.dtype == DType::bf16 ? "BF16" : "F32"}, {"shape", t.shape}, {"data_offsets", {begin, data.size()}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t header_bytes = text.size();
  write_file(path, std::string(reinterpret_cast<const char*>(&header_bytes), 8) + text + data);
}

void write_weights(const TinyModel& m, const std::string& directory) {
  const auto tensors = tensors_of(m);
  if (m.n_shards == 1) return write_shard(directory + "/model.safetensors", tensors, m);
  json map = json::object();
  int64_t total = 0;
  const auto n_tensors = static_cast<int64_t>(tensors.size());
  for (int64_t s = 0; s < m.n_shards; ++s) {
    char name[64];
    std::snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", static_cast<int>(s + 1), static_cast<int>(m.n_shards));
    const int64_t begin = n_tensors * s / m.n_shards, end = n_tensors * (s + 1) / m.n_shards;
    const auto part = std::span(tensors).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    write_shard(directory + "/" + name, part, m);
    for (const auto& t : part) {
      map[t.name] = name;
      total += n_values(t) * static_cast<int64_t>(size_of(m.dtype));
    }
  }
  const json index = {{"metadata", {{"total_size", total}}}, {"weight_map", map}};
  write_file(directory + "/model.safetensors.index.json", index.dump(1) + "\n");
}

json config_of(const TinyModel& m) {
  const bool qwen = m.family == "qwen2" || m.family == "qwen3";
  const std::string architecture = m.family == "llama"     ? "LlamaForCausalLM"
                                   : m.family == "mistral" ? "MistralForCausalLM"
                                   : m.family == "qwen2"   ? "Qwen2ForCausalLM"
                                                           : "Qwen3ForCausalLM";
  json config = {{"architectures", {architecture}},
                 {"model_type", m.family},
                 {"hidden_size", m.hidden},
                 {"intermediate_size", m.ffn},
                 {"num_hidden_layers", m.n_layers},
                 {"num_attention_heads", m.n_heads},
                 {"num_key_value_heads", m.n_kv_heads},
                 {"head_dim", m.head_dim},
                 {"vocab_size", m.vocab},
                 {"max_position_embeddings", m.max_positions},
                 {"hidden_act", "silu"},
                 {"rms_norm_eps", 1e-5},
                 {"rope_theta", 10000.0},
                 {"rope_scaling", nullptr},
                 {"tie_word_embeddings", m.tied},
                 {"torch_dtype", m.dtype == DType::bf16 ? "bfloat16" : "float32"},
                 {"bos_token_id", kTinyImStart},
                 {"eos_token_id", kTinyImEnd},
                 {"pad_token_id", kTinyPad}};
  if (m.family == "mistral" || m.sliding_window > 0)
    config["sliding_window"] = m.sliding_window > 0 ? json(m.sliding_window) : json();
  if (qwen) {
    config["use_sliding_window"] = m.sliding_window > 0;
    config["max_window_layers"] = 1;
  }
  return config;
}

// Byte-level BPE without merges: the printable bytes stand for themselves, the others for code points from 256 on.
json tokenizer_json() {
  json vocab = json::object();
  json added = json::array();
  for (int i = 0; i < 4; ++i) {
    added.push_back({{"id", i},
                     {"content", kSpecials[i]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
    vocab[kSpecials[i]] = i;
  }
  uint32_t next = 256;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool itself = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
    std::string token;
    append_utf8(token, itself ? byte : next++);
    vocab[token] = byte + 4;
  }
  const json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false},
            {"vocab", vocab},
            {"merges", json::array()}}}};
}

}  // namespace

void write_tiny_model(const TinyModel& m, const std::string& directory) {
  check(m.family == "llama" || m.family == "mistral" || m.family == "qwen2" || m.family == "qwen3", "no tiny model of family ",
        m.family);
  check(m.vocab >= 260, "vocab ", m.vocab, ", the tokenizer has 260 tokens");
  check(m.n_shards >= 1 && m.n_shards <= 99, m.n_shards, " shards");
  check(m.n_layers >= 1 && m.hidden >= 1 && m.n_heads >= 1 && m.n_kv_heads >= 1 && m.head_dim >= 2 && m.ffn >= 1,
        "sizes below 1");
  write_weights(m, directory);
  write_file(directory + "/config.json", config_of(m).dump(2) + "\n");
  const json generation = {
      {"bos_token_id", kTinyImStart}, {"eos_token_id", {kTinyImEnd, kTinyEndOfText}}, {"pad_token_id", kTinyPad}};
  write_file(directory + "/generation_config.json", generation.dump(2) + "\n");
  write_file(directory + "/tokenizer.json", tokenizer_json().dump());
  const json tokenizer_config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                                 {"bos_token", kSpecials[kTinyImStart]},
                                 {"eos_token", kSpecials[kTinyImEnd]},
                                 {"pad_token", kSpecials[kTinyPad]},
                                 {"model_max_length", m.max_positions},
                                 {"clean_up_tokenization_spaces", false},
                                 {"chat_template", kChatMl}};
  write_file(directory + "/tokenizer_config.json", tokenizer_config.dump(2) + "\n");
}

}  // namespace lockstep
