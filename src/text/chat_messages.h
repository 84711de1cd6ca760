// The request's side of a chat template: messages and tools as template values, and continue_final_message. What Transformers
// does before and after rendering; no template here.
//   ChatMessages chat = read_messages(json, budget);
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_value.h"

namespace lockstep::jinja {

struct ChatMessages {
  std::vector<Value> messages;
  std::string final_content;  // by mark_final_message
};

// Keys whose value is null are dropped; reasoning_content, thinking and reasoning stand for each other, as in Transformers 5.
ChatMessages read_messages(std::string_view json, Budget& budget);

Value read_tools(std::string_view json, Budget& budget);  // none where empty

// continue_final_message: a mark is put behind the content of the last message, and the rendered prompt is cut at it.
void mark_final_message(ChatMessages& chat, Budget& budget);
MarkedText cut_after_final_message(const MarkedText& prompt, const ChatMessages& chat);

}  // namespace lockstep::jinja
