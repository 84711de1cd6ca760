// config.json, and the same bytes as generation_config.json and tokenizer_config.json: refused with Error (unreadable), or a
// config whose tensors can be listed without overflow.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "checkpoint/content.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/hf_directory.h"

namespace {

template <class Parse>
void expect_value_or_refusal(Parse&& parse) {
  using namespace lockstep;
  try {
    parse();
  } catch (const Error& e) {
    if (e.code != ExitCode::unreadable) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  const std::string text(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> warnings;
  expect_value_or_refusal([&] {
    const ModelConfig config = parse_hf_config(text, "fuzz", warnings);
    if (config.n_heads % config.n_kv_heads != 0 || config.windows.size() != static_cast<size_t>(config.n_layers)) std::abort();
    for (const auto& spec : expected_tensors(config)) {
      if (spec.rows < 1 || spec.cols < 1 || spec.rows > (int64_t{1} << 40) / spec.cols * 1024) std::abort();
    }
  });
  expect_value_or_refusal([&] { parse_generation_config(text, "fuzz", 1000, warnings); });
  expect_value_or_refusal([&] { chat_template_of(text, "fuzz", warnings); });
  return 0;
}
