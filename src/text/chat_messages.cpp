#include "text/chat_messages.h"

#include "base/error.h"
#include "text/jinja_json.h"

#include <algorithm>

namespace lockstep::jinja {

namespace {

// Roles that templates know; see the header of chat_template.h.
constexpr std::string_view kRoles[] = {"system",    "developer", "user",          "assistant",          "tool",
                                       "function",  "model",     "ipython",       "observation",        "tool_results",
                                       "documents", "context",   "tool_response", "assistant_tool_call"};

// Letters for the end of the final message's content. The blank tells whether the template kept trailing white space.
constexpr std::string_view kEndMark = "lockstep_end_of_final_message ";

Value shared(Dict dict) { return Value(std::make_shared<const Dict>(std::move(dict))); }

Value read_message(const Value& value, Budget& budget) {
  if (value.dict() == nullptr) raise("messages: each has to be an object");
  const Dict& given = *value.dict();
  const Value* reasoning = nullptr;
  for (const std::string_view name : {"reasoning_content", "thinking", "reasoning"}) {
    const Value* found = given.find(name);
    if (reasoning == nullptr && found != nullptr && !found->is_none()) reasoning = found;
  }
  Dict message;
  if (reasoning != nullptr) message.set(make_text("thinking", false), *reasoning, budget);
  for (const auto& [key, item] : given.entries) {
    if (item.is_none()) continue;
    const MarkedText* role = key.text()->bytes == "role" ? item.text() : nullptr;
    const bool known = role != nullptr && std::find(std::begin(kRoles), std::end(kRoles), role->bytes) != std::end(kRoles);
    message.set(key, known ? make_text(role->bytes, true) : item, budget);
  }
  if (reasoning != nullptr) message.set(make_text("reasoning_content", false), *reasoning, budget);
  return shared(std::move(message));
}

// `dict` with one entry replaced.
Value with_entry(const Dict& dict, std::string_view name, Value value, Budget& budget) {
  Dict copy;
  for (const auto& [key, item] : dict.entries) {
    copy.set(key, key.text()->bytes == name ? value : item, budget);
  }
  return shared(std::move(copy));
}

Value marked(const Value& text, std::string& content) {
  if (text.text() == nullptr) raise("continue_final_message: the content of the last message is no text");
  content = text.text()->bytes;
  MarkedText with_mark = *text.text();
  with_mark.append(kEndMark, false);
  return Value(std::move(with_mark));
}

std::string_view stripped(std::string_view text) {
  const auto [from, to] = strip_bounds(text, true, true);
  return text.substr(from, to - from);
}

}  // namespace

ChatMessages read_messages(std::string_view json, Budget& budget) {
  const Value value = read_json(json, false, budget);
  const Sequence* list = value.sequence();
  if (list == nullptr) raise("messages: an array is wanted");
  if (list->items.empty()) raise("messages: there is none");
  ChatMessages chat;
  for (const Value& message : list->items) chat.messages.push_back(read_message(message, budget));
  return chat;
}

Value read_tools(std::string_view json, Budget& budget) {
  if (json.empty()) return Value();
  Value tools = read_json(json, false, budget);
  if (tools.is_none()) return tools;
  if (tools.sequence() == nullptr) raise("tools: an array is wanted");
  for (const Value& tool : tools.sequence()->items) {
    if (tool.dict() == nullptr) raise("tools: each has to be an object");
  }
  return tools;
}

void mark_final_message(ChatMessages& chat, Budget& budget) {
  const Dict& message = *chat.messages.back().dict();
  const Value* content = message.find("content");
  if (content == nullptr) raise("continue_final_message: the last message has no content");
  Value end = *content;
  if (const Sequence* parts = content->sequence()) {
    std::vector<Value> items = parts->items;
    const auto last = std::find_if(items.rbegin(), items.rend(), [](const Value& part) {
      return part.dict() != nullptr && part.dict()->find("text") != nullptr;
    });
    if (last == items.rend()) raise("continue_final_message: the last message has no text");
    const Dict& part = *last->dict();
    *last = with_entry(part, "text", marked(*part.find("text"), chat.final_content), budget);
    end = make_list(std::move(items), budget);
  } else {
    end = marked(*content, chat.final_content);
  }
  chat.messages.back() = with_entry(message, "content", std::move(end), budget);
}

MarkedText cut_after_final_message(const MarkedText& prompt, const ChatMessages& chat) {
  const std::string_view bytes = prompt.bytes, mark = stripped(kEndMark);
  const size_t at = rfind_bytes(bytes, mark);
  if (at == std::string_view::npos || find_bytes(bytes, stripped(chat.final_content)) == std::string_view::npos) {
    raise("continue_final_message: the template changes or leaves out the content of the last message");
  }
  const bool keeps_space = bytes.substr(at, kEndMark.size()) == kEndMark;
  const MarkedText kept = prompt.slice(0, keeps_space ? at : strip_bounds(bytes.substr(0, at), false, true).second);
  // A template that writes the content twice leaves marks in the middle. Their blank, where still there, is the request's.
  MarkedText clean;
  size_t from = 0;
  for (size_t hit = find_bytes(kept.bytes, mark); hit != std::string_view::npos; hit = find_bytes(kept.bytes, mark, from)) {
    clean.append(kept, from, hit);
    from = hit + mark.size();
    if (from < kept.bytes.size() && kept.bytes[from] == ' ' && !kept.trusted_at(from)) ++from;
  }
  clean.append(kept, from, kept.bytes.size());
  return clean;
}

}  // namespace lockstep::jinja
