#include "text/decoder.h"

#include "base/error.h"
#include "base/utf8.h"
#include "text/byte_level.h"

namespace lockstep {
namespace {

constexpr size_t kMaxPieceBytes = 1024, kMaxGrowth = 32;
constexpr std::string_view kReplacementText = "\uFFFD";

// Stops where the result is longer than `limit`.
std::string replaced(std::string_view text, std::string_view what, std::string_view with, size_t limit = SIZE_MAX) {
  std::string out;
  size_t done = 0;
  for (size_t at = text.find(what); at != std::string_view::npos; at = text.find(what, done)) {
    out.append(text.substr(done, at - done)).append(with);
    done = at + what.size();
    if (out.size() > limit) return out;
  }
  return out.append(text.substr(done));
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c |= 0x20;
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// <0xNN>, or -1.
int16_t byte_of_name(std::string_view name) {
  if (name.size() != 6 || !name.starts_with("<0x") || name[5] != '>') return -1;
  const int high = name[3] == '+' ? 0 : hex_digit(name[3]);
  const int low = hex_digit(name[4]);
  return high < 0 || low < 0 ? -1 : static_cast<int16_t>(16 * high + low);
}

}  // namespace

Decoder::Decoder(const StringTable& tokens, DecoderOptions options) : options_(std::move(options)) {
  bytes_.assign(tokens.n_ids(), -1);
  if (options_.drops_first_metaspace) firsts_.resize(tokens.n_ids());
  for (TokenId id = 0; id < tokens.n_ids(); ++id) {
    if (!tokens.has(id)) continue;
    const std::string_view text = tokens.text(id);
    if (options_.kind == DecoderOptions::Kind::byte_level) {
      const auto bytes = bytes_of_level_text(text);
      pieces_.add(id, bytes ? *bytes : text);
      continue;
    }
    std::string piece(text);
    const size_t limit = kMaxPieceBytes + kMaxGrowth * text.size();
    for (const auto& [what, with] : options_.replacements) {
      piece = replaced(piece, what, with, limit);
      if (piece.size() > limit)
        fail(ExitCode::unreadable, "tokenizer: the decoder makes more than ", kMaxGrowth, " bytes of each of token ", id);
    }
    if (options_.byte_fallback) bytes_[id] = byte_of_name(piece);
    if (options_.drops_first_metaspace) firsts_[id] = replaced(piece, options_.metaspace, "");
    if (!options_.metaspace.empty()) piece = replaced(piece, options_.metaspace, " ");
    pieces_.add(id, piece);
  }
}

void Decoder::append_text(std::string_view text, DecodeState& state, std::string& out) const {
  while (!state.text_started && !text.empty()) {
    if (state.n_stripped == options_.n_strip || !text.starts_with(options_.strip)) {
      state.text_started = true;
    } else {
      ++state.n_stripped;
      text.remove_prefix(options_.strip.size());
    }
  }
  out += text;
}

void Decoder::append(TokenId id, DecodeState& state, std::string& out) const {
  if (!knows(id)) return;
  if (options_.kind == DecoderOptions::Kind::byte_level) {
    out += piece(id);
    return;
  }
  if (is_byte(id)) {
    state.started = true;
    state.run += byte(id);
    return;
  }
  finish(state, out);
  if (options_.kind == DecoderOptions::Kind::joined && state.started) out += ' ';
  append_text(options_.drops_first_metaspace && !state.started ? std::string_view(firsts_[id]) : piece(id), state, out);
  state.started = true;
}

void Decoder::finish(DecodeState& state, std::string& out) const {
  if (state.run.empty()) return;
  if (find_invalid_utf8(state.run) == std::string_view::npos) {
    append_text(state.run, state, out);
  } else {
    for (size_t i = 0; i < state.run.size(); ++i) append_text(kReplacementText, state, out);
  }
  state.run.clear();
}

}  // namespace lockstep
