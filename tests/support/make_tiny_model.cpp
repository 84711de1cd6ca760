// make_tiny_model DIRECTORY [KEY=VALUE...]: writes a tiny model for scripts.
//   make_tiny_model /tmp/tiny family=qwen3 n_layers=4 n_shards=3 dtype=f32
#include <cstdio>
#include <exception>
#include <filesystem>
#include <map>
#include <string>

#include "base/error.h"
#include "support/tiny_model.h"

namespace {

lockstep::TinyModel parse(int argc, char** argv) {
  using lockstep::DType;
  lockstep::TinyModel m;
  const std::map<std::string, int64_t*> sizes = {{"n_layers", &m.n_layers},
                                                 {"hidden", &m.hidden},
                                                 {"n_heads", &m.n_heads},
                                                 {"n_kv_heads", &m.n_kv_heads},
                                                 {"head_dim", &m.head_dim},
                                                 {"ffn", &m.ffn},
                                                 {"vocab", &m.vocab},
                                                 {"n_shards", &m.n_shards},
                                                 {"sliding_window", &m.sliding_window},
                                                 {"max_positions", &m.max_positions}};
  for (int i = 2; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t equals = argument.find('=');
    const std::string key = argument.substr(0, equals), value = equals == std::string::npos ? "" : argument.substr(equals + 1);
    if (const auto size = sizes.find(key); size != sizes.end()) {
      *size->second = std::stoll(value);
    } else if (key == "family") {
      m.family = value;
    } else if (key == "tied") {
      m.tied = value == "1" || value == "true";
    } else if (key == "seed") {
      m.seed = std::stoull(value);
    } else if (key == "dtype" && (value == "f32" || value == "bf16")) {
      m.dtype = value == "f32" ? DType::f32 : DType::bf16;
    } else {
      lockstep::fail(lockstep::ExitCode::usage, "unknown argument ", argument);
    }
  }
  return m;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: make_tiny_model DIRECTORY [KEY=VALUE...]   keys: the fields of TinyModel (tiny_model.h)\n");
    return 2;
  }
  try {
    const auto model = parse(argc, argv);
    std::filesystem::create_directories(argv[1]);
    lockstep::write_tiny_model(model, argv[1]);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "make_tiny_model: %s\n", e.what());
    return 2;
  }
}
