#include "checkpoint/hf_config.h"

#include <array>
#include <cmath>
#include <limits>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/content.h"
#include "checkpoint/json.h"
#include "checkpoint/printable.h"

namespace lockstep {

namespace {

using nlohmann::json;

constexpr size_t kMaxConfigValues = size_t{1} << 18;

std::string shown(const json& value) { return printable(value.dump(-1, ' ', true, json::error_handler_t::replace)); }

// An object whose fields are asked for by type; null counts as missing.
class Fields {
 public:
  Fields(const json& object, std::string origin) : object_(&object), origin_(std::move(origin)) {}

  const json* find(const char* key) const {
    const auto at = object_->find(key);
    return at == object_->end() || at->is_null() ? nullptr : &*at;
  }
  bool written(const char* key) const { return object_->contains(key); }  // null counts
  std::optional<int64_t> integer(const char* key) const {
    const json* value = find(key);
    if (!value) return std::nullopt;
    if (!value->is_number_integer() ||
        (value->is_number_unsigned() && value->get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()})) {
      bad(key, *value, "an integer");
    }
    return value->get<int64_t>();
  }
  int64_t required_integer(const char* key) const {
    const auto value = integer(key);
    if (!value) fail(ExitCode::unreadable, origin_, ": no ", key);
    return *value;
  }
  std::optional<double> number(const char* key) const {
    const json* value = find(key);
    if (!value) return std::nullopt;
    if (!value->is_number()) bad(key, *value, "a number");
    return value->get<double>();
  }
  std::optional<double> number_between(const char* key, double low, double high) const {
    const auto value = number(key);
    if (value && !(*value >= low && *value <= high)) {
      fail(ExitCode::unreadable, origin_, ": ", key, " is ", *value, ", between ", low, " and ", high, " is possible");
    }
    return value;
  }
  std::optional<bool> boolean(const char* key) const {
    const json* value = find(key);
    if (!value) return std::nullopt;
    if (!value->is_boolean()) bad(key, *value, "true or false");
    return value->get<bool>();
  }
  std::optional<std::string> string(const char* key) const {
    const json* value = find(key);
    if (!value) return std::nullopt;
    if (!value->is_string()) bad(key, *value, "a string");
    return value->get<std::string>();
  }
  std::optional<Fields> object(const char* key) const {
    const json* value = find(key);
    if (!value) return std::nullopt;
    if (!value->is_object()) bad(key, *value, "an object");
    return Fields(*value, origin_ + ": " + key);
  }
  const std::string& origin() const { return origin_; }

  [[noreturn]] void bad(const char* key, const json& value, const char* wanted) const {
    fail(ExitCode::unreadable, origin_, ": ", key, " is ", shown(value), ", ", wanted, " is expected");
  }

 private:
  const json* object_;
  std::string origin_;
};

// What the configuration classes of the families assume where a key is missing.
struct Family {
  const char* model_type;
  const char* architecture;
  int64_t default_kv_heads;  // 0: as many as heads
  int64_t default_head_dim;  // 0: hidden / heads
  int64_t default_max_positions;
};
constexpr std::array<Family, 4> kFamilies = {{
    {"llama", "LlamaForCausalLM", 0, 0, 2048},
    {"mistral", "MistralForCausalLM", 8, 0, 131072},
    {"qwen2", "Qwen2ForCausalLM", 32, 0, 32768},
    {"qwen3", "Qwen3ForCausalLM", 32, 128, 32768},
}};
constexpr const char* kSupported = "supported are LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM";

const Family& find_family(const Fields& config) {
  const json* list = config.find("architectures");
  if (list && !list->is_array()) config.bad("architectures", *list, "a list");
  const auto type = config.string("model_type");
  if (list && !list->empty()) {
    for (const auto& family : kFamilies) {
      if (list->front() == family.architecture && (!type || *type == family.model_type)) return family;
    }
    fail(ExitCode::unreadable, config.origin(), ": architecture ", shown(list->front()), " (model_type ",
         type ? printable(*type) : "not given", ") is not supported; ", kSupported);
  }
  for (const auto& family : kFamilies) {
    if (type && *type == family.model_type) return family;
  }
  fail(ExitCode::unreadable, config.origin(), ": model_type ", type ? printable(*type) : "not given", " is not supported; ",
       kSupported);
}

RopeConfig parse_rope(const Fields& config, int64_t max_positions) {
  auto scaling = config.object("rope_parameters");
  if (!scaling) scaling = config.object("rope_scaling");
  RopeConfig rope;
  rope.theta = config.number("rope_theta").value_or(10000);
  if (const auto part = config.number("partial_rotary_factor"); part && *part != 1) {
    fail(ExitCode::unreadable, config.origin(), ": partial_rotary_factor ", *part, " is not supported; 1 is");
  }
  if (!scaling) return rope;
  rope.theta = scaling->number("rope_theta").value_or(rope.theta);
  if (const auto part = scaling->number("partial_rotary_factor"); part && *part != 1) {
    fail(ExitCode::unreadable, scaling->origin(), ": partial_rotary_factor ", *part, " is not supported; 1 is");
  }
  for (const char* nested : {"full_attention", "sliding_attention"}) {
    if (scaling->written(nested)) fail(ExitCode::unreadable, scaling->origin(), ": RoPE by layer type is not supported");
  }
  auto type = scaling->string("rope_type");
  if (!type) type = scaling->string("type");
  if (!type || *type == "default") return rope;
  const auto required = [&](const char* key) {
    const auto value = scaling->number(key);
    if (!value) fail(ExitCode::unreadable, scaling->origin(), ": no ", key);
    return *value;
  };
  if (*type == "linear") {
    rope.scaling = RopeConfig::Scaling::linear;
    rope.factor = required("factor");
  } else if (*type == "llama3") {
    rope.scaling = RopeConfig::Scaling::llama3;
    rope.factor = required("factor");
    rope.low_freq_factor = required("low_freq_factor");
    rope.high_freq_factor = required("high_freq_factor");
    auto original = scaling->integer("original_max_position_embeddings");
    if (!original) original = config.integer("original_max_position_embeddings");
    rope.original_max_positions = original.value_or(max_positions);
  } else {
    fail(ExitCode::unreadable, scaling->origin(), ": RoPE type '", printable(*type),
         "' is not supported; default, linear and llama3 are");
  }
  return rope;
}

int32_t window_size(const Fields& config, int64_t value) {
  if (value < 1 || value > std::numeric_limits<int32_t>::max()) {
    fail(ExitCode::unreadable, config.origin(), ": sliding_window is ", value);
  }
  return static_cast<int32_t>(value);
}

// A window of w: a position sees itself and the w - 1 before it.
std::vector<int32_t> parse_windows(const Fields& config, const std::string& family, int64_t n_layers) {
  std::vector<int32_t> windows(static_cast<size_t>(n_layers), 0);
  if (family == "llama") return windows;
  if (family == "mistral") {
    const auto window = config.written("sliding_window") ? config.integer("sliding_window") : 4096;
    if (window) windows.assign(windows.size(), window_size(config, *window));
    return windows;
  }
  if (!config.boolean("use_sliding_window").value_or(false)) return windows;
  const auto window = config.written("sliding_window") ? config.integer("sliding_window") : 4096;
  if (!window) return windows;
  const json* types = config.find("layer_types");
  if (types && (!types->is_array() || types->size() != windows.size()))
    config.bad("layer_types", *types, "a list with one name a layer");
  const int64_t first = config.integer("max_window_layers").value_or(28);
  for (size_t i = 0; i < windows.size(); ++i) {
    bool slides = static_cast<int64_t>(i) >= first;
    if (types) {
      slides = (*types)[i] == "sliding_attention";
      if (!slides && (*types)[i] != "full_attention")
        config.bad("layer_types", (*types)[i], "sliding_attention or full_attention");
    }
    if (slides) windows[i] = window_size(config, *window);
  }
  return windows;
}

std::vector<TokenId> parse_eos(const Fields& config, int64_t vocab, std::vector<std::string>& warnings) {
  const json* value = config.find("eos_token_id");
  std::vector<TokenId> ids;
  if (!value) return ids;
  const json list = value->is_array() ? *value : json::array({*value});
  if (list.size() > 1024) config.bad("eos_token_id", *value, "at most 1024 ids");
  for (const auto& id : list) {
    if (!id.is_number_integer()) config.bad("eos_token_id", *value, "an id or a list of ids");
    if (id >= 0 && id < vocab) {
      ids.push_back(id.get<TokenId>());
    } else {
      warnings.push_back(concat(config.origin(), ": eos_token_id ", shown(id), " is ignored, the vocabulary has ", vocab));
    }
  }
  return ids;
}

void refuse_quantisation(const Fields& config) {
  for (const char* key : {"quantization_config", "compression_config"}) {
    const auto quantisation = config.object(key);
    if (!quantisation) continue;
    const json* method = quantisation->find("quant_method");
    fail(ExitCode::unreadable, config.origin(), ": quantised weights (", key, ", quant_method ",
         method ? shown(*method) : "not given", ") are not supported; safetensors in F32, F16 or BF16 and GGUF are");
  }
}

}  // namespace

ModelConfig parse_hf_config(const std::string& text, const std::string& origin, std::vector<std::string>& warnings) {
  const json root = parse_json_object(text, origin, kMaxConfigValues);
  const Fields config(root, origin);
  const Family& family = find_family(config);
  refuse_quantisation(config);
  const std::string activation = config.string("hidden_act").value_or("silu");
  if (activation != "silu" && activation != "swish") {
    fail(ExitCode::unreadable, origin, ": hidden_act '", printable(activation), "' is not supported; silu is");
  }

  ModelConfig c;
  c.family = family.model_type;
  c.n_layers = config.required_integer("num_hidden_layers");
  c.hidden = config.required_integer("hidden_size");
  c.n_heads = config.required_integer("num_attention_heads");
  c.ffn = config.required_integer("intermediate_size");
  c.vocab = config.required_integer("vocab_size");
  c.max_positions = config.integer("max_position_embeddings").value_or(family.default_max_positions);
  const int64_t default_kv_heads =
      family.default_kv_heads > 0 && !config.written("num_key_value_heads") ? family.default_kv_heads : c.n_heads;
  c.n_kv_heads = config.integer("num_key_value_heads").value_or(default_kv_heads);
  c.rms_eps = static_cast<float>(config.number("rms_norm_eps").value_or(1e-6));
  c.tied_embeddings = config.boolean("tie_word_embeddings").value_or(false);
  if (const auto head_dim = config.integer("head_dim")) {
    c.head_dim = *head_dim;
  } else if (family.default_head_dim > 0 && !config.written("head_dim")) {
    c.head_dim = family.default_head_dim;
  } else {
    if (c.n_heads < 1 || c.hidden % c.n_heads != 0) {
      fail(ExitCode::unreadable, origin, ": hidden_size ", c.hidden, " is not a multiple of num_attention_heads ", c.n_heads,
           " and there is no head_dim");
    }
    c.head_dim = c.hidden / c.n_heads;
  }
  const bool attention_bias = config.boolean("attention_bias").value_or(false);
  c.qk_norm = c.family == "qwen3";
  c.qkv_bias = c.family == "qwen2" || ((c.family == "llama" || c.family == "qwen3") && attention_bias);
  c.o_bias = (c.family == "llama" || c.family == "qwen3") && attention_bias;
  c.mlp_bias = c.family == "llama" && config.boolean("mlp_bias").value_or(false);
  c.rope = parse_rope(config, c.max_positions);
  check_model_config(c, origin);  // before anything is sized by n_layers

  c.windows = parse_windows(config, c.family, c.n_layers);
  c.eos_token_ids = parse_eos(config, c.vocab, warnings);
  if (const auto bos = config.integer("bos_token_id")) {
    if (*bos >= 0 && *bos < c.vocab) {
      c.bos_token_id = static_cast<TokenId>(*bos);
    } else {
      warnings.push_back(concat(origin, ": bos_token_id ", *bos, " is ignored, the vocabulary has ", c.vocab));
    }
  }
  return c;
}

GenerationDefaults parse_generation_config(const std::string& text, const std::string& origin, int64_t vocab,
                                           std::vector<std::string>& warnings) {
  const json root = parse_json_object(text, origin, kMaxConfigValues);
  const Fields config(root, origin);
  constexpr double kLarge = 1e6, kSmall = 1e-6;
  GenerationDefaults g;
  g.temperature = config.number_between("temperature", 0, kLarge);
  g.top_p = config.number_between("top_p", kSmall, 1);
  g.min_p = config.number_between("min_p", 0, 1);
  g.repetition_penalty = config.number_between("repetition_penalty", kSmall, kLarge);
  if (config.number_between("top_k", 0, kLarge * kLarge)) g.top_k = config.integer("top_k");
  if (config.number_between("max_new_tokens", 1, kLarge * kLarge)) g.max_new_tokens = config.integer("max_new_tokens");
  g.eos_token_ids = parse_eos(config, vocab, warnings);
  g.do_sample = config.boolean("do_sample");
  return g;
}

}  // namespace lockstep
