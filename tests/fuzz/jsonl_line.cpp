// Any bytes as a line of the input: no crash, no quadratic time, and what is accepted is sound.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "journal/json_line.h"
#include "journal/output_record.h"
#include "journal/prompt_reader.h"

namespace {

void require(bool ok) {
  if (!ok) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  static JsonLine json;  // used again, as the scan of a file does

  // Strict JSON is JSON to others too.
  if (!json.parse(text)) require(nlohmann::json::accept(text));

  const PromptRecord record = parse_prompt(json, text, 12);
  require(outline_prompt(json, text, 12).custom_id == record.custom_id);
  require(!record.custom_id.empty() && find_invalid_utf8(record.custom_id) == std::string_view::npos);
  if (record.fault) {
    require(record.fault->message.size() < 1000);
    const auto written = nlohmann::json::parse(error_record_at_line(error_record(record.custom_id, *record.fault), 12));
    require(written["custom_id"] == record.custom_id);
    require(written["error"]["message"] == "line 12: " + record.fault->message);
    return 0;
  }
  if (record.endpoint == Endpoint::chat_completions) {
    require(record.prompts.empty());
    const auto messages = nlohmann::json::parse(record.messages);
    require(messages.is_array() && !messages.empty());
    for (const auto& message : messages)
      require(message["role"].is_string() && (!message.contains("content") || !message["content"].is_array()));
    require(record.tools.empty() || nlohmann::json::parse(record.tools).is_array());
    require(record.chat_template_kwargs.empty() || nlohmann::json::parse(record.chat_template_kwargs).is_object());
  } else {
    require(!record.prompts.empty());
    for (const PromptText& prompt : record.prompts) require(std::visit([](const auto& p) { return !p.empty(); }, prompt));
  }
  return 0;
}
