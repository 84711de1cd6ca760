#include "checkpoint/gguf_model.h"

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "checkpoint/gguf.h"
#include "checkpoint/gguf_fields.h"
#include "checkpoint/gguf_split.h"
#include "checkpoint/printable.h"

namespace lockstep {

namespace {

struct Located {
  const GgufTensor* tensor;
  uint32_t file;
};
using TensorMap = std::map<std::string, Located>;  // by GGUF name

// ---- names ----

constexpr std::array<std::pair<const char*, const char*>, 11> kLayerNames = {{
    {"input_layernorm", "attn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"post_attention_layernorm", "ffn_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
}};

// "model.layers.3.mlp.up_proj.weight" is "blk.3.ffn_up.weight".
std::string gguf_name(const std::string& hf_name) {
  if (hf_name == "model.embed_tokens.weight") return "token_embd.weight";
  if (hf_name == "model.norm.weight") return "output_norm.weight";
  if (hf_name == "lm_head.weight") return "output.weight";
  constexpr size_t kPrefix = std::string_view("model.layers.").size();
  const size_t after_number = hf_name.find('.', kPrefix), last_dot = hf_name.rfind('.');
  const std::string part = hf_name.substr(after_number + 1, last_dot - after_number - 1);
  for (const auto& [hf, gguf] : kLayerNames) {
    if (part == hf) return "blk." + hf_name.substr(kPrefix, after_number - kPrefix) + "." + gguf + hf_name.substr(last_dot);
  }
  fail(ExitCode::other, "no GGUF name for ", hf_name);
}

// ---- config ----

RopeConfig parse_rope(const GgufFields& m, const std::string& arch, int64_t head_dim) {
  RopeConfig rope;
  rope.theta = m.number(arch + ".rope.freq_base").value_or(10000);
  const int64_t turned = m.integer(arch + ".rope.dimension_count").value_or(head_dim);
  if (turned != head_dim) {
    fail(ExitCode::unreadable, m.origin(), ": RoPE over ", turned, " of ", head_dim,
         " dimensions is not supported; over all is");
  }
  auto factor = m.number(arch + ".rope.scaling.factor");
  if (!factor) factor = m.number(arch + ".rope.scale_linear");
  const std::string type =
      m.string(arch + ".rope.scaling.type").value_or(factor && *factor != 0 && *factor != 1 ? "linear" : "none");
  if (type == "linear") {
    rope.scaling = RopeConfig::Scaling::linear;
    rope.factor = factor.value_or(1);
  } else if (type != "none") {
    fail(ExitCode::unreadable, m.origin(), ": RoPE scaling '", printable(type),
         "' is not supported; none, linear and rope_freqs.weight (llama3) are");
  }
  return rope;
}

std::optional<TokenId> token_id(const GgufFields& m, const char* key, int64_t vocab, std::vector<std::string>& warnings) {
  const auto id = m.integer(key);
  if (!id) return std::nullopt;
  if (*id >= 0 && *id < vocab) return static_cast<TokenId>(*id);
  warnings.push_back(concat(m.origin(), ": ", key, " ", *id, " is ignored, the vocabulary has ", vocab));
  return std::nullopt;
}

ModelConfig parse_config(const GgufFields& m, const TensorMap& tensors, std::vector<std::string>& warnings) {
  const std::string arch = m.string("general.architecture").value_or("");
  if (arch != "llama" && arch != "qwen2" && arch != "qwen3") {
    fail(ExitCode::unreadable, m.origin(), ": GGUF architecture '", printable(arch),
         "' is not supported; llama (with Mistral), qwen2 and qwen3 are");
  }
  if (m.integer(arch + ".expert_count").value_or(0) != 0) {
    fail(ExitCode::unreadable, m.origin(), ": a mixture of experts (", arch, ".expert_count) is not supported");
  }
  const auto has = [&](const char* name) { return tensors.contains(name); };
  ModelConfig c;
  c.family = arch;
  c.n_layers = m.required_integer(arch + ".block_count");
  c.hidden = m.required_integer(arch + ".embedding_length");
  c.n_heads = m.required_integer(arch + ".attention.head_count");
  c.n_kv_heads = m.integer(arch + ".attention.head_count_kv").value_or(c.n_heads);
  c.ffn = m.required_integer(arch + ".feed_forward_length");
  c.max_positions = m.required_integer(arch + ".context_length");
  c.rms_eps = static_cast<float>(m.number(arch + ".attention.layer_norm_rms_epsilon").value_or(1e-6));
  if (!has("token_embd.weight")) fail(ExitCode::unreadable, m.origin(), ": tensor 'token_embd.weight' is missing");
  c.vocab = tensors.at("token_embd.weight").tensor->shape.front();
  if (const auto vocab = m.integer(arch + ".vocab_size"); vocab && *vocab != c.vocab) {
    fail(ExitCode::unreadable, m.origin(), ": ", arch, ".vocab_size is ", *vocab, ", token_embd.weight has ", c.vocab, " rows");
  }
  if (const auto head_dim = m.integer(arch + ".attention.key_length")) {
    c.head_dim = *head_dim;
  } else {
    if (c.n_heads < 1 || c.hidden % c.n_heads != 0) {
      fail(ExitCode::unreadable, m.origin(), ": ", arch, ".embedding_length ", c.hidden, " is not a multiple of head_count ",
           c.n_heads);
    }
    c.head_dim = c.hidden / c.n_heads;
  }
  if (const auto value_dim = m.integer(arch + ".attention.value_length"); value_dim && *value_dim != c.head_dim) {
    fail(ExitCode::unreadable, m.origin(), ": value_length ", *value_dim, " differs from key_length ", c.head_dim,
         ", which is not supported");
  }
  c.tied_embeddings = !has("output.weight");
  c.qkv_bias = arch == "qwen2" || has("blk.0.attn_q.bias");
  c.o_bias = has("blk.0.attn_output.bias");
  c.mlp_bias = has("blk.0.ffn_up.bias");
  c.qk_norm = arch == "qwen3";
  if (!c.qk_norm && has("blk.0.attn_q_norm.weight")) {
    fail(ExitCode::unreadable, m.origin(), ": tensor 'blk.0.attn_q_norm.weight' in the ", arch,
         " architecture is not supported");
  }
  c.rope = parse_rope(m, arch, c.head_dim);
  check_model_config(c, m.origin());  // before anything is sized by n_layers

  c.windows.assign(static_cast<size_t>(c.n_layers), 0);
  if (const int64_t window = m.integer(arch + ".attention.sliding_window").value_or(0); window != 0) {
    if (window < 0 || window > std::numeric_limits<int32_t>::max())
      fail(ExitCode::unreadable, m.origin(), ": sliding_window is ", window);
    if (arch == "llama") {
      c.family = "mistral";
      c.windows.assign(c.windows.size(), static_cast<int32_t>(window));
    } else {
      warnings.push_back(concat(m.origin(), ": ", arch, ".attention.sliding_window is ignored, all layers see everything"));
    }
  }
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    const auto id = token_id(m, key, c.vocab, warnings);
    if (id && std::find(c.eos_token_ids.begin(), c.eos_token_ids.end(), *id) == c.eos_token_ids.end())
      c.eos_token_ids.push_back(*id);
  }
  c.bos_token_id = token_id(m, "tokenizer.ggml.bos_token_id", c.vocab, warnings);
  return c;
}

// ---- tokenizer ----

std::optional<GgufTokenizer> parse_tokenizer(const GgufFields& m, int64_t vocab, std::vector<std::string>& warnings) {
  GgufTokenizer t;
  t.model = m.string("tokenizer.ggml.model").value_or("");
  t.pre = m.string("tokenizer.ggml.pre").value_or("");
  t.tokens = m.strings("tokenizer.ggml.tokens");
  if (t.tokens.empty()) {
    warnings.push_back(m.origin() + ": no tokenizer.ggml.tokens: only prompts given as token ids can be used");
    return std::nullopt;
  }
  const auto n = static_cast<int64_t>(t.tokens.size());
  if (n > vocab) fail(ExitCode::unreadable, m.origin(), ": ", n, " tokens, token_embd.weight has ", vocab, " rows");
  t.scores = m.floats("tokenizer.ggml.scores");
  t.token_types = m.integers("tokenizer.ggml.token_type");
  t.merges = m.strings("tokenizer.ggml.merges");
  for (const auto& [key, size] : {std::pair("scores", t.scores.size()), std::pair("token_type", t.token_types.size())}) {
    if (size != 0 && size != t.tokens.size()) {
      fail(ExitCode::unreadable, m.origin(), ": tokenizer.ggml.", key, " has ", size, " entries for ", n, " tokens");
    }
  }
  const auto id = [&](const char* key) -> std::optional<int64_t> { return token_id(m, key, n, warnings); };
  std::vector<std::string> repeated;  // bos and eos were reported with the config
  t.bos_id = token_id(m, "tokenizer.ggml.bos_token_id", n, repeated);
  t.eos_id = token_id(m, "tokenizer.ggml.eos_token_id", n, repeated);
  t.unk_id = id("tokenizer.ggml.unknown_token_id");
  t.pad_id = id("tokenizer.ggml.padding_token_id");
  t.add_bos = m.boolean("tokenizer.ggml.add_bos_token");
  t.add_eos = m.boolean("tokenizer.ggml.add_eos_token");
  t.add_space_prefix = m.boolean("tokenizer.ggml.add_space_prefix");
  if (t.model == "gpt2" && t.pre.empty()) {
    warnings.push_back(m.origin() + ": no tokenizer.ggml.pre, so how text is cut before merging is unknown");
  }
  return t;
}

// ---- tensors ----

void bind_tensors(CheckpointContent& content, const std::string& origin, const TensorMap& tensors) {
  const ModelConfig& c = content.config;
  const bool interleaved = c.family == "llama" || c.family == "mistral";
  std::set<std::string> used = {"rope_freqs.weight"};
  for (const auto& spec : expected_tensors(c)) {
    const std::string name = gguf_name(spec.name);
    const auto at = tensors.find(name);
    if (at == tensors.end()) fail(ExitCode::unreadable, origin, ": tensor '", name, "' ", shape_text(spec), " is missing");
    const auto& [tensor, file] = at->second;
    const std::string& path = content.weights[file].path();
    const int64_t rows = tensor->shape.size() == 1 ? 1 : tensor->shape.front(), cols = tensor->shape.back();
    if (tensor->shape.size() > 2 || rows != spec.rows || cols != spec.cols) {
      fail(ExitCode::unreadable, path, ": tensor '", name, "' has shape ", shape_text(tensor->shape), ", the metadata ask for ",
           shape_text(spec));
    }
    const auto type = gguf_stored_type(tensor->type);
    if (!type)
      fail(ExitCode::unreadable, path, ": tensor '", name, "' has type ", gguf_type_name(tensor->type), "; ", kGgufSupported);
    StoredTensor stored{file, tensor->offset, *type, rows, cols, 0};
    if (interleaved && name.find(".attn_q.") != std::string::npos) stored.interleaved_heads = c.n_heads;
    if (interleaved && name.find(".attn_k.") != std::string::npos) stored.interleaved_heads = c.n_kv_heads;
    if (spec.vector && stored.interleaved_heads && layout_of(*type).values != 1) {
      fail(ExitCode::unreadable, path, ": tensor '", name, "' is a bias of type ", gguf_type_name(tensor->type),
           "; F32, F16 and BF16 are supported");
    }
    content.tensors[spec.name] = stored;
    used.insert(name);
  }
  std::vector<std::string> extra;
  for (const auto& [name, where] : tensors) {
    if (!used.contains(name)) extra.push_back(name);
  }
  if (!extra.empty()) content.warnings.push_back(list_names(extra, "tensors are not used"));
}

// Called last: these few numbers are part of the config but lie among the weights.
void read_frequency_factors(CheckpointContent& content, const std::string& origin, const TensorMap& tensors) {
  const auto at = tensors.find("rope_freqs.weight");
  if (at == tensors.end()) return;
  const auto& [tensor, file] = at->second;
  const int64_t n = content.config.head_dim / 2;
  if (tensor->shape != std::vector{n} || gguf_stored_type(tensor->type) != StoredType::f32) {
    fail(ExitCode::unreadable, origin, ": tensor 'rope_freqs.weight' is ", gguf_type_name(tensor->type), " ",
         shape_text(tensor->shape), ", F32 [", n, "] is expected");
  }
  auto& factors = content.config.rope.frequency_factors;
  factors.resize(static_cast<size_t>(n));
  content.weights[file].read(tensor->offset, std::as_writable_bytes(std::span(factors)));
  check_model_config(content.config, origin);
}

// ---- files ----

struct Parts {
  std::vector<File> files;
  std::vector<GgufHeader> headers;
};

Parts open_parts(const std::string& path) {
  const auto name = parse_split_name(path);
  if (!name) {
    Parts parts;
    parts.files.emplace_back(path);
    parts.headers.push_back(read_gguf_header(parts.files[0]));
    const GgufFields m(parts.headers[0].metadata, path);
    const int64_t count = m.integer("split.count").value_or(1);
    if (count > 1) fail(ExitCode::unreadable, path, ": one of ", count, " parts, but not named NAME-00001-of-0000N.gguf");
    return parts;
  }
  std::vector<std::string> missing;
  for (int64_t i = 1; i <= name->count && missing.size() < 6; ++i) {
    if (!file_exists(split_name(*name, i))) missing.push_back(base_name(split_name(*name, i)));
  }
  if (!missing.empty()) fail(ExitCode::unreadable, path, ": of ", name->count, " parts, ", list_names(missing, "missing"));
  Parts parts;
  for (int64_t i = 1; i <= name->count; ++i) {
    parts.files.emplace_back(split_name(*name, i));
    parts.headers.push_back(read_gguf_header(parts.files.back()));
    const GgufFields m(parts.headers.back().metadata, parts.files.back().path());
    const int64_t number = m.integer("split.no").value_or(i - 1), count = m.integer("split.count").value_or(name->count);
    if (number != i - 1 || count != name->count) {
      fail(ExitCode::unreadable, m.origin(), ": says it is part ", number + 1, " of ", count, ", its name says ", i, " of ",
           name->count);
    }
  }
  return parts;
}

TensorMap merge_tensors(const Parts& parts) {
  TensorMap tensors;
  for (size_t i = 0; i < parts.headers.size(); ++i) {
    for (const auto& tensor : parts.headers[i].tensors) {
      if (!tensors.emplace(tensor.name, Located{&tensor, static_cast<uint32_t>(i)}).second) {
        fail(ExitCode::unreadable, parts.files[i].path(), ": tensor ", in_quotes(tensor.name), " is in an earlier part too");
      }
    }
  }
  const GgufFields m(parts.headers[0].metadata, parts.files[0].path());
  const int64_t announced = m.integer("split.tensors.count").value_or(static_cast<int64_t>(tensors.size()));
  if (announced != static_cast<int64_t>(tensors.size())) {
    fail(ExitCode::unreadable, m.origin(), ": ", announced, " tensors are announced, the parts hold ", tensors.size());
  }
  return tensors;
}

}  // namespace

CheckpointContent open_gguf(const std::string& path) {
  Parts parts = open_parts(path);
  const TensorMap tensors = merge_tensors(parts);
  const GgufFields m(parts.headers[0].metadata, parts.files[0].path());
  CheckpointContent content;
  content.format = "gguf";
  content.config = parse_config(m, tensors, content.warnings);
  content.weights = std::move(parts.files);
  content.gguf_tokenizer = parse_tokenizer(m, content.config.vocab, content.warnings);
  bind_tensors(content, m.origin(), tensors);
  read_frequency_factors(content, m.origin(), tensors);

  content.chat_template = m.string("tokenizer.chat_template");
  if (content.chat_template) {
    if (content.chat_template->size() > kMaxChatTemplateBytes)
      fail(ExitCode::unreadable, m.origin(), ": tokenizer.chat_template is too long");
    if (find_invalid_utf8(*content.chat_template) != std::string::npos) {
      fail(ExitCode::unreadable, m.origin(), ": tokenizer.chat_template is not valid UTF-8");
    }
  }
  return content;
}

std::string choose_gguf(const std::string& directory, const std::vector<std::string>& gguf_names) {
  std::set<std::string> models;  // the first part stands for a split model
  for (const auto& name : gguf_names) {
    const auto split = parse_split_name(name);
    models.insert(split ? split_name(*split, 1) : name);
  }
  if (models.size() > 1) {
    fail(ExitCode::unreadable, directory, ": name one of ", list_names({models.begin(), models.end()}, "GGUF models"));
  }
  return directory + "/" + *models.begin();
}

}  // namespace lockstep
