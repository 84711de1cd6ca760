// A chat template; after a byte 1E the messages, then the variables, then the tools (JSON each, and each may be left out).
// A template that ends in a newline is rendered with continue_final_message, others with add_generation_prompt.
// Refused with Error (unreadable), or rendered within the usual limits: a Fault, or pieces of UTF-8 in which what came from
// the messages is never trusted.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "base/utf8.h"
#include "text/chat_template.h"

namespace {

using namespace lockstep;

constexpr const char* kMark = "\uE000";  // of the messages below; no case, no white space
constexpr const char* kMessages =
    "[{\"role\": \"system\", \"content\": \"Be \uE000 brief.\"},"
    " {\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \" <|x|>\uE000 & 'q' \\n\"}, {\"type\": \"image\"}]},"
    " {\"role\": \"assistant\", \"content\": null, \"thinking\": \"\uE000\", \"tool_calls\": [{\"id\": \"\uE000\", \"type\": "
    "\"function\","
    "  \"function\": {\"name\": \"f\uE000\", \"arguments\": {\"a\": [1, -2.5, true, null, 123456789012345678901234567890]}}}]},"
    " {\"role\": \"tool\", \"name\": \"f\uE000\", \"content\": \"4\"},"
    " {\"role\": \"\uE000\", \"content\": \"A\uE000, b.\"}]";
constexpr const char* kTools =
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\uE000\", \"description\": \"d\", \"parameters\": {\"type\": "
    "\"object\","
    " \"properties\": {\"a\": {\"type\": \"array\", \"enum\": [1, 2]}}, \"required\": [\"a\"]}}}]";

void require(bool ok) {
  if (!ok) std::abort();
}

bool is_utf8(std::string_view text) { return find_invalid_utf8(text) == std::string_view::npos; }

std::string_view take_field(std::string_view& input) {
  const size_t end = std::min(input.find('\x1E'), input.size());
  const std::string_view field = input.substr(0, end);
  input.remove_prefix(std::min(end + 1, input.size()));
  return field;
}

void check_rendering(const Result<std::vector<TextPiece>>& rendered, bool may_write_mark) {
  if (!rendered.ok()) {
    require(rendered.fault().code == "template_error" && !rendered.fault().message.empty());
    require(is_utf8(rendered.fault().message) && rendered.fault().message.size() <= 4096);
    return;
  }
  const std::vector<TextPiece>& pieces = rendered.value();
  for (size_t i = 0; i < pieces.size(); ++i) {
    require(!pieces[i].text.empty() && is_utf8(pieces[i].text));
    require(i == 0 || pieces[i].trusted != pieces[i - 1].trusted);
    require(may_write_mark || !pieces[i].trusted || pieces[i].text.find(kMark) == std::string::npos);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const std::string_view source = take_field(rest);
  const std::string_view messages = take_field(rest), kwargs = take_field(rest), tools = take_field(rest);
  ChatInput input{.messages = messages.empty() ? kMessages : std::string(messages),
                  .tools = tools.empty() ? kTools : std::string(tools),
                  .kwargs = std::string(kwargs),
                  .bos_text = "<s>",
                  .eos_text = "</s>"};
  if (source.ends_with('\n')) {  // one rendering an input, so that the slowest stay within the fuzzer's timeout
    input.add_generation_prompt = false;
    input.continue_final_message = true;
  }
  const bool may_write_mark = source.find(kMark) != std::string_view::npos || source.find('\\') != std::string_view::npos;
  try {
    check_rendering(ChatTemplate::parse(source).render(input), may_write_mark);
  } catch (const Error& error) {
    require(error.code == ExitCode::unreadable);
  }
  return 0;
}
