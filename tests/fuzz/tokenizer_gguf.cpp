// The tokenizer of a GGUF file, written as lines of any bytes:
//   model
//   pre
//   letters: b/B add_bos yes/no, e/E add_eos, s/S add_space_prefix, t token types are given, c scores are given
//   ids of bos, eos, unk, pad; '-' for none
//   a token a line (type, score, text), then an empty line, then a merge a line
// Refused with Error (unreadable), or a tokenizer that keeps its promises for hostile texts and for any ids.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <sstream>
#include <string_view>

#include "base/error.h"
#include "hostile_texts.h"
#include "tokenizer_checks.h"

namespace {

using namespace lockstep;

class Lines {
 public:
  explicit Lines(std::string_view text) : text_(text) {}
  bool more() const { return !text_.empty(); }
  std::string_view next() {
    const size_t end = std::min(text_.find('\n'), text_.size());
    const std::string_view line = text_.substr(0, end);
    text_.remove_prefix(std::min(end + 1, text_.size()));
    return line;
  }

 private:
  std::string_view text_;
};

std::optional<bool> given(std::string_view letters, char yes, char no) {
  if (letters.find(yes) != std::string_view::npos) return true;
  return letters.find(no) != std::string_view::npos ? std::optional(false) : std::nullopt;
}

float score_of(char byte) {
  if (byte == '\x7F') return std::numeric_limits<float>::quiet_NaN();
  if (byte == '\x7E') return std::numeric_limits<float>::infinity();
  return static_cast<float>(byte);
}

GgufVocab read_vocab(std::string_view input) {
  Lines lines(input);
  GgufVocab vocab;
  vocab.model = lines.next();
  vocab.pre = lines.next();
  const std::string_view letters = lines.next();
  vocab.add_bos = given(letters, 'b', 'B');
  vocab.add_eos = given(letters, 'e', 'E');
  vocab.add_space_prefix = given(letters, 's', 'S');
  std::istringstream ids{std::string(lines.next())};
  for (auto* id : {&vocab.bos_id, &vocab.eos_id, &vocab.unk_id, &vocab.pad_id}) {
    std::string word;
    if (ids >> word && word != "-") *id = std::strtoll(word.c_str(), nullptr, 10);
  }
  while (lines.more()) {
    const std::string_view line = lines.next();
    if (line.empty()) break;
    vocab.tokens.emplace_back(line.substr(std::min<size_t>(2, line.size())));
    if (letters.find('t') != std::string_view::npos) vocab.token_types.push_back(line[0] - '0');
    if (letters.find('c') != std::string_view::npos) vocab.scores.push_back(score_of(line.size() > 1 ? line[1] : '0'));
  }
  while (lines.more()) vocab.merges.emplace_back(lines.next());
  return vocab;
}

void use(const Tokenizer& tokenizer) {
  std::vector<TokenId> ids(std::min(tokenizer.n_tokens() + 2, 600));
  std::iota(ids.begin(), ids.end(), -1);
  check_ids(tokenizer, ids);
  std::string vocabulary;
  for (TokenId id = 0; id < std::min(tokenizer.n_tokens(), 40); ++id) vocabulary += tokenizer.token_bytes(id).substr(0, 64);
  check_text(tokenizer, vocabulary);
  for (const std::string& text : hostile_texts()) check_text(tokenizer, text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    use(Tokenizer::from_gguf(read_vocab({reinterpret_cast<const char*>(data), size})));
  } catch (const Error& error) {
    require(error.code == ExitCode::unreadable);
  }
  return 0;
}
