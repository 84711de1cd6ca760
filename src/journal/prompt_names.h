// Names of a request's parameters that are not read: harmless ones pass, ones that would change the text pass with their
// neutral value only, the rest is unknown. Not for the values of what is read: prompt_params.
//   if (auto fault = judge_unread(json, "temprature", value, Endpoint::completions)) ...  // "did you mean 'temperature'?"
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "journal/json_line.h"
#include "records/prompt_record.h"

namespace lockstep {

constexpr std::string_view path_of(Endpoint endpoint) {
  return endpoint == Endpoint::chat_completions ? "/v1/chat/completions" : "/v1/completions";
}

// Of a name that nobody reads at this endpoint: nullopt where it may be ignored.
std::optional<Fault> judge_unread(const JsonLine& json, const std::string& name, NodeId value, Endpoint endpoint);

}  // namespace lockstep
