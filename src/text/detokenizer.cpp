#include "text/detokenizer.h"

#include <utility>

#include "base/utf8.h"
#include "text/tokenizer_parts.h"

namespace lockstep {
namespace {

// Whether a lossy decode of `bytes` ends in a character other than U+FFFD. A lead byte always begins a character, so the
// last few bytes decide.
bool ends_whole(std::string_view bytes) {
  for (size_t back = 1; back <= 4 && back <= bytes.size(); ++back) {
    const size_t at = bytes.size() - back;
    if ((static_cast<unsigned char>(bytes[at]) & 0xC0) == 0x80) continue;
    const CodePoint c = decode_utf8(bytes, at);
    return c.valid && c.length == back && c.value != kReplacement;
  }
  return false;
}

}  // namespace

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens)
    : parts_(tokenizer.parts()), skip_special_tokens_(skip_special_tokens) {}

std::string Detokenizer::push(TokenId id) {
  const Decoder& decoder = parts_->decoder;
  if (!decoder.knows(id) || (skip_special_tokens_ && parts_->is_special(id))) return {};
  if (decoder.is_byte(id)) return push_byte(decoder.byte(id));
  decoder.append(id, state_, held_);
  run_valid_ = 0;
  run_broken_ = false;
  if (!ends_whole(held_)) return {};
  return lossy_utf8(std::exchange(held_, {}));
}

std::string Detokenizer::push_byte(char byte) {
  std::string& run = state_.run;
  state_.started = true;
  run += byte;
  while (!run_broken_ && run_valid_ < run.size()) {
    const CodePoint c = decode_utf8(run, run_valid_);
    if (!c.valid) {
      const auto first = static_cast<unsigned char>(run[run_valid_]);
      const bool unfinished = first >= 0xC2 && first <= 0xF4 && run_valid_ + c.length == run.size();
      run_broken_ = !unfinished;
      break;
    }
    run_valid_ += c.length;
  }
  if (run_broken_ || run_valid_ < run.size() || !ends_whole(run)) return {};
  parts_->decoder.finish(state_, held_);
  run_valid_ = 0;
  return lossy_utf8(std::exchange(held_, {}));
}

std::string Detokenizer::finish() {
  parts_->decoder.finish(state_, held_);
  state_ = {};
  run_valid_ = 0;
  run_broken_ = false;
  return lossy_utf8(std::exchange(held_, {}));
}

}  // namespace lockstep
