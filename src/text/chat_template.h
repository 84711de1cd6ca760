// A model's chat template: a conversation to the text of its prompt. Our own interpreter of the Jinja that Transformers runs
// (jinja_*.h), without clock, files or the host's attributes. Not the choice of the template (checkpoint) and no tokens.
//   auto t = ChatTemplate::parse(source);   auto pieces = t.render({.messages = R"([{"role": "user", "content": "Hi"}])"});
//
// Trust: characters of messages, tools and kwargs are never trusted, whatever the template does to them. One exception: the
// role of a message, where it is a word of a closed list (user, assistant, tool …), since templates build <|user|> of it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/text_piece.h"

namespace lockstep {

// What strftime_now prints where the caller gives no time. The machine's clock is never read: a prompt may depend on what
// is stored with the run only, so that two runs of the same work give the same bytes.
inline constexpr const char* kDefaultNow = "2025-01-02 03:04:05";

struct ChatInput {
  std::string messages = {};  // JSON array of objects; keys that are null count as absent
  std::string tools = {};     // JSON array, or ""
  std::string kwargs = {};    // JSON object of further variables, or ""; they win over the special tokens
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // the prompt ends with the last message's content; excludes add_generation_prompt
  std::string bos_text = {}, eos_text = {};
  std::vector<std::pair<std::string, std::string>> special_tokens = {};  // variable ("pad_token") and text
  std::string now = {};                                                  // "YYYY-MM-DD HH:MM:SS", or "" for kDefaultNow
};

class ChatTemplate {
 public:
  // Throws Error (unreadable) with the line and what is wrong or not supported.
  static ChatTemplate parse(std::string_view source);

  // Neighbouring pieces differ in trust. raise_exception and run-time errors are Fault "template_error".
  Result<std::vector<TextPiece>> render(const ChatInput& input) const;

 private:
  struct Parsed;
  std::shared_ptr<const Parsed> parsed_;
};

}  // namespace lockstep
