#include "checkpoint/gguf_fields.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace lockstep {

template <class T>
std::optional<T> GgufFields::get(const std::string& key, const char* wanted) const {
  const auto at = metadata_.find(key);
  if (at == metadata_.end()) return std::nullopt;
  const T* value = std::get_if<T>(&at->second);
  if (!value) bad(key, wanted);
  return *value;
}

template std::optional<bool> GgufFields::get(const std::string&, const char*) const;
template std::optional<std::string> GgufFields::get(const std::string&, const char*) const;

void GgufFields::bad(const std::string& key, const char* wanted) const {
  fail(ExitCode::unreadable, origin_, ": GGUF key '", key, "' is not ", wanted);
}

std::optional<int64_t> GgufFields::integer(const std::string& key) const {
  const auto at = metadata_.find(key);
  if (at == metadata_.end()) return std::nullopt;
  if (const auto* one = std::get_if<int64_t>(&at->second)) return *one;
  const auto* many = std::get_if<std::vector<int64_t>>(&at->second);
  if (!many || many->empty()) bad(key, "an integer");
  if (std::any_of(many->begin(), many->end(), [&](int64_t v) { return v != many->front(); })) {
    bad(key, "the same for all layers, which is what is supported");
  }
  return many->front();
}

int64_t GgufFields::required_integer(const std::string& key) const {
  const auto value = integer(key);
  if (!value) fail(ExitCode::unreadable, origin_, ": no GGUF key '", key, "'");
  return *value;
}

std::optional<double> GgufFields::number(const std::string& key) const {
  const auto at = metadata_.find(key);
  if (at == metadata_.end()) return std::nullopt;
  if (const auto* integer = std::get_if<int64_t>(&at->second)) return static_cast<double>(*integer);
  return get<double>(key, "a number");
}

std::vector<std::string> GgufFields::strings(const std::string& key) const {
  return get<std::vector<std::string>>(key, "an array of strings").value_or(std::vector<std::string>());
}

std::vector<float> GgufFields::floats(const std::string& key) const {
  const auto values = get<std::vector<double>>(key, "an array of numbers").value_or(std::vector<double>());
  return {values.begin(), values.end()};
}

std::vector<int32_t> GgufFields::integers(const std::string& key) const {
  std::vector<int32_t> out;
  for (const int64_t value : get<std::vector<int64_t>>(key, "an array of integers").value_or(std::vector<int64_t>())) {
    if (value < std::numeric_limits<int32_t>::min() || value > std::numeric_limits<int32_t>::max())
      bad(key, "an array of 32-bit integers");
    out.push_back(static_cast<int32_t>(value));
  }
  return out;
}

}  // namespace lockstep
