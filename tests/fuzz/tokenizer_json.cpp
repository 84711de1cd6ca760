// A tokenizer.json, and after a byte 1E a tokenizer_config.json: refused with Error (unreadable), or a tokenizer that keeps
// its promises for hostile texts and for any ids.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string_view>

#include "base/error.h"
#include "hostile_texts.h"
#include "tokenizer_checks.h"

namespace {

using namespace lockstep;

void use(const Tokenizer& tokenizer) {
  std::vector<TokenId> ids(std::min(tokenizer.n_tokens() + 2, 600));
  std::iota(ids.begin(), ids.end(), -1);
  check_ids(tokenizer, ids);
  std::reverse(ids.begin(), ids.end());
  check_ids(tokenizer, ids);

  std::string vocabulary;
  for (TokenId id = 0; id < std::min(tokenizer.n_tokens(), 40); ++id) vocabulary += tokenizer.token_bytes(id).substr(0, 64);
  check_text(tokenizer, vocabulary);
  check_text(tokenizer, tokenizer.bos_text() + " " + tokenizer.eos_text() + tokenizer.bos_text());
  for (const std::string& text : hostile_texts()) check_text(tokenizer, text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(input.find('\x1E'), input.size());
  try {
    use(Tokenizer::from_json(input.substr(0, end), input.substr(std::min(end + 1, input.size()))));
  } catch (const Error& error) {
    require(error.code == ExitCode::unreadable);
  }
  return 0;
}
