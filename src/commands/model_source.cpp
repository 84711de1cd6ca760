#include "commands/model_source.h"

#include <filesystem>

#include "base/durable_file.h"
#include "base/hash.h"

namespace lockstep {

ModelSource open_model(const RunOptions& options) {
  ModelSource model;
  model.checkpoint = options.load_format == "dummy" ? Checkpoint::open_random(options.model) : Checkpoint::open(options.model);
  const ModelConfig& config = model.checkpoint->config();
  model.dtype = options.dtype == "f32" ? DType::f32 : options.dtype == "bf16" ? DType::bf16 : model.checkpoint->natural_dtype();
  model.max_model_len = options.max_model_len > 0 ? options.max_model_len : config.max_positions;
  if (model.max_model_len > config.max_positions)
    fail(ExitCode::usage, "--max-model-len ", model.max_model_len, ": the model has ", config.max_positions, " positions");

  const std::filesystem::path path = std::filesystem::path(options.model).lexically_normal();
  model.name = !options.served_model_name.empty() ? options.served_model_name
               : path.has_filename()              ? path.filename().string()
                                                  : path.parent_path().filename().string();
  Digester all;
  for (const std::string& file : model.checkpoint->identity_paths()) {
    model.files.emplace_back(std::filesystem::path(file).filename().string(), digest_file(file).hex());
    all.add(model.files.back().first);
    all.add(model.files.back().second);
  }
  model.digest = all.finish().hex();

  model.defaults = {.max_tokens = options.max_tokens,
                    .temperature = options.temperature,
                    .top_p = options.top_p,
                    .seed = options.seed,
                    .chat_template = std::nullopt,
                    .parse_content = options.content_special_tokens == "parse"};
  if (!options.chat_template.empty()) {
    constexpr size_t kMaxTemplateBytes = 256 << 10;
    model.defaults.chat_template = read_small_file(options.chat_template, kMaxTemplateBytes);
    if (!model.defaults.chat_template) fail(ExitCode::unreadable, "--chat-template ", options.chat_template, ": no such file");
    model.files.emplace_back("--chat-template", digest128(*model.defaults.chat_template).hex());
  }
  return model;
}

}  // namespace lockstep
