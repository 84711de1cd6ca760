// Metadata of a GGUF file asked for by key and type; a wrong type is an Error that names the key.
//   const GgufFields m(header.metadata, path);   m.integer("llama.block_count")
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/gguf.h"

namespace lockstep {

class GgufFields {
 public:
  using Metadata = decltype(GgufHeader::metadata);
  GgufFields(const Metadata& metadata, std::string origin) : metadata_(metadata), origin_(std::move(origin)) {}

  bool has(std::string_view key) const { return metadata_.find(key) != metadata_.end(); }
  const std::string& origin() const { return origin_; }

  // Also an array of equal numbers, as some converters write one value a layer.
  std::optional<int64_t> integer(const std::string& key) const;
  int64_t required_integer(const std::string& key) const;
  std::optional<double> number(const std::string& key) const;
  std::optional<bool> boolean(const std::string& key) const { return get<bool>(key, "a boolean"); }
  std::optional<std::string> string(const std::string& key) const { return get<std::string>(key, "a string"); }

  // Empty where the key is missing.
  std::vector<std::string> strings(const std::string& key) const;
  std::vector<float> floats(const std::string& key) const;
  std::vector<int32_t> integers(const std::string& key) const;

 private:
  template <class T>
  std::optional<T> get(const std::string& key, const char* wanted) const;
  [[noreturn]] void bad(const std::string& key, const char* wanted) const;

  const Metadata& metadata_;
  std::string origin_;
};

}  // namespace lockstep
