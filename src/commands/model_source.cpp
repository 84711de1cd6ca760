#include "commands/model_source.h"

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "base/bytes.h"
#include "base/durable_file.h"
#include "base/hash.h"

namespace lockstep {

namespace {

// Which rank reads which file: the largest first, each to the rank with the least so far.
std::vector<int> readers_of(const std::vector<ModelFile>& files, int n_ranks) {
  std::vector<size_t> order(files.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return files[a].bytes > files[b].bytes; });
  std::vector<uint64_t> load(static_cast<size_t>(n_ranks));
  std::vector<int> readers(files.size());
  for (const size_t file : order) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += files[file].bytes;
    readers[file] = static_cast<int>(least - load.begin());
  }
  return readers;
}

}  // namespace

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
  }
  return model;
}

void identify(ModelSource& model, Communicator& node) {
  const std::vector<std::string> paths = model.checkpoint->identity_paths();
  const std::vector<int> readers = readers_of(model.checkpoint->files(), node.size());
  check(readers.size() == paths.size(), paths.size(), " files, ", readers.size(), " sizes");
  ByteWriter mine, told;  // a fault is told before anything else: the others wait for this rank's digests
  ExitCode code = ExitCode::done;
  std::string what;
  try {
    for (size_t i = 0; i < paths.size(); ++i)
      if (readers[i] == node.rank()) mine.put_string(digest_file(paths[i]).hex());
  } catch (const Error& e) {
    code = e.code, what = e.what();
  } catch (const std::exception& e) {
    code = ExitCode::other, what = e.what();
  }
  told.put(code);
  told.put_string(what);
  const auto reports = node.exchange(told.bytes());
  for (const auto& report : reports) {
    ByteReader r(report);
    const auto theirs = r.get<ExitCode>();
    if (theirs != ExitCode::done) fail(theirs, r.get_string());
  }

  const auto digests = node.exchange(mine.bytes());
  std::vector<ByteReader> of_rank(digests.begin(), digests.end());
  std::vector<std::pair<std::string, std::string>> files;
  Digester all;
  for (size_t i = 0; i < paths.size(); ++i) {
    files.emplace_back(std::filesystem::path(paths[i]).filename().string(),
                       of_rank[static_cast<size_t>(readers[i])].get_string());
    all.add(files.back().first);
    all.add(files.back().second);
  }
  model.digest = all.finish().hex();
  if (model.defaults.chat_template) files.emplace_back("--chat-template", digest128(*model.defaults.chat_template).hex());
  model.files = std::move(files);
}

}  // namespace lockstep
