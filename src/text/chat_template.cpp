#include "text/chat_template.h"

#include "base/error.h"
#include "base/utf8.h"
#include "text/chat_messages.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_json.h"
#include "text/jinja_parser.h"
#include "text/jinja_strftime.h"

#include <algorithm>

namespace lockstep {

using jinja::Budget;
using jinja::Interpreter;
using jinja::RenderError;
using jinja::Value;

struct ChatTemplate::Parsed {
  jinja::Program program;
  bool names_content = false;  // the source holds "content"
};

ChatTemplate ChatTemplate::parse(std::string_view source) {
  auto parsed = std::make_shared<Parsed>();
  parsed->program = jinja::parse_template(source);
  parsed->names_content = source.find("content") != std::string_view::npos;
  ChatTemplate chat_template;
  chat_template.parsed_ = std::move(parsed);
  return chat_template;
}

namespace {

constexpr int64_t kFuelPerMessage = 1000;
constexpr int64_t kMaxExtraFuel = 9'000'000;

void set_variable(Interpreter::Variables& variables, const std::string& name, Value value) {
  const auto old = std::find_if(variables.begin(), variables.end(), [&](const auto& v) { return v.first == name; });
  if (old != variables.end()) {
    old->second = std::move(value);
  } else {
    variables.emplace_back(name, std::move(value));
  }
}

void add_kwargs(Interpreter::Variables& variables, const std::string& json, Budget& budget) {
  const Value kwargs = jinja::read_json(json, false, budget);
  if (kwargs.dict() == nullptr) jinja::raise("chat_template_kwargs: an object is wanted");
  if (kwargs.dict()->entries.size() > 1000) jinja::raise("chat_template_kwargs: more than 1000 names");
  for (const auto& [key, value] : kwargs.dict()->entries) {
    const std::string& name = key.text()->bytes;
    static constexpr std::string_view kReserved[] = {
        "messages", "tools", "add_generation_prompt", "continue_final_message", "chat_template", "tokenize", "conversation"};
    if (std::find(std::begin(kReserved), std::end(kReserved), name) != std::end(kReserved)) {
      jinja::raise("chat_template_kwargs: '", name, "' is no variable of its own; the request has a field for it");
    }
    set_variable(variables, name, value);
  }
}

std::vector<TextPiece> to_pieces(const MarkedText& text) {
  std::vector<TextPiece> pieces;
  size_t at = 0;
  for (const MarkedText::Run& run : text.runs) {
    pieces.push_back({text.bytes.substr(at, run.end - at), run.trusted});
    at = run.end;
  }
  return pieces;
}

// The message goes into the line's record, and a template or a request may have made it as long as it liked, or had it quote
// half a character.
Fault fault(std::string message) {
  constexpr size_t kMaxMessageBytes = 2000;
  if (message.size() > kMaxMessageBytes) {
    size_t end = kMaxMessageBytes;
    while ((static_cast<unsigned char>(message[end]) & 0xC0) == 0x80) --end;
    message.resize(end);
    message += " \u2026";
  }
  if (message.empty()) message = "the template raises an exception without a message";
  return {"template_error", lossy_utf8(message)};
}

}  // namespace

Result<std::vector<TextPiece>> ChatTemplate::render(const ChatInput& input) const {
  if (input.add_generation_prompt && input.continue_final_message) {
    return fault("continue_final_message and add_generation_prompt exclude each other");
  }
  if (!input.now.empty() && !jinja::is_time(input.now)) return fault("the time of the run is no YYYY-MM-DD HH:MM:SS");
  Budget reading;  // of the input, whose size the reader of lines limits
  reading.fuel = reading.text_bytes = INT64_MAX;
  try {
    jinja::ChatMessages chat = jinja::read_messages(input.messages, reading);
    if (input.continue_final_message) {
      if (!parsed_->names_content) jinja::raise("continue_final_message: the template doesn't use the content of messages");
      jinja::mark_final_message(chat, reading);
    }
    Interpreter::Variables variables;
    const auto extra_fuel = std::min(kMaxExtraFuel, kFuelPerMessage * static_cast<int64_t>(chat.messages.size()));
    set_variable(variables, "documents", Value());
    set_variable(variables, "bos_token", jinja::make_text(input.bos_text, true));
    set_variable(variables, "eos_token", jinja::make_text(input.eos_text, true));
    for (const auto& [name, text] : input.special_tokens) set_variable(variables, name, jinja::make_text(text, true));
    if (!input.kwargs.empty()) add_kwargs(variables, input.kwargs, reading);
    set_variable(variables, "messages", jinja::make_list(std::move(chat.messages), reading));
    set_variable(variables, "tools", jinja::read_tools(input.tools, reading));
    set_variable(variables, "add_generation_prompt", Value(input.add_generation_prompt));

    Interpreter interpreter(parsed_->program, std::move(variables), input.now.empty() ? kDefaultNow : input.now, extra_fuel);
    try {
      MarkedText prompt = interpreter.render();
      if (input.continue_final_message) prompt = jinja::cut_after_final_message(prompt, chat);
      return to_pieces(prompt);
    } catch (const RenderError& error) {
      Fault out = fault(error.message);
      if (!error.by_template) out.message += concat(" (chat template line ", interpreter.line(), ")");
      return out;
    }
  } catch (const RenderError& error) {
    return fault(error.message);
  }
}

}  // namespace lockstep
