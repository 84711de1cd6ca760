// Split GGUF files, named PREFIX-00001-of-00003.gguf.
//   if (auto part = parse_split_name(path)) first = split_name(*part, 1);
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

struct SplitName {
  std::string prefix;
  int64_t number = 0, count = 0;  // 1-based
};

inline std::optional<SplitName> parse_split_name(const std::string& path) {
  constexpr size_t kTail = 20;  // -00001-of-00003.gguf
  if (path.size() < kTail) return std::nullopt;
  const std::string tail = path.substr(path.size() - kTail);
  SplitName name{path.substr(0, path.size() - kTail), 0, 0};
  for (size_t i = 0; i < kTail; ++i) {
    const char pattern = "-ddddd-of-ddddd.gguf"[i];
    const bool digit = tail[i] >= '0' && tail[i] <= '9';
    if (pattern == 'd' ? !digit : tail[i] != pattern) return std::nullopt;
    if (i >= 1 && i <= 5) name.number = name.number * 10 + (tail[i] - '0');
    if (i >= 10 && i <= 14) name.count = name.count * 10 + (tail[i] - '0');
  }
  if (name.number < 1 || name.number > name.count) return std::nullopt;
  return name;
}

inline std::string split_name(const SplitName& name, int64_t number) {
  const auto digits = [](int64_t n) {
    const std::string text = std::to_string(n);
    return std::string(5 - text.size(), '0') + text;
  };
  return name.prefix + "-" + digits(number) + "-of-" + digits(name.count) + ".gguf";
}

}  // namespace lockstep
