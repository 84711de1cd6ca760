// Plain values to bytes and back, for messages between ranks and raw files. Little-endian hosts only (checked at compile
// time). Reading is checked: a short or oversized message throws Error, so old or foreign bytes cannot run off the end.
//   ByteWriter w; w.put(step); w.put_vector(ids);      ByteReader r(bytes); auto step = r.get<int64_t>();
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/error.h"

namespace lockstep {

static_assert(std::endian::native == std::endian::little);

class ByteWriter {
 public:
  template <class T>
  requires std::is_trivially_copyable_v<T>
  void put(const T& value) { append(&value, sizeof value); }
  template <class T>
  requires std::is_trivially_copyable_v<T>
  void put_vector(const std::vector<T>& values) {
    put<uint64_t>(values.size());
    append(values.data(), values.size() * sizeof(T));
  }
  void put_string(std::string_view text) {
    put<uint64_t>(text.size());
    append(text.data(), text.size());
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  void append(const void* data, size_t n) {
    const auto* p = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), p, p + n);
  }
  std::vector<std::byte> bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <class T>
  requires std::is_trivially_copyable_v<T> T get() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  template <class T>
  requires std::is_trivially_copyable_v<T> std::vector<T> get_vector() {
    const auto n = get<uint64_t>();
    check(n <= rest_.size() / sizeof(T), "message holds ", rest_.size(), " bytes, ", n, " elements announced");
    std::vector<T> values(n);
    if (n > 0) std::memcpy(values.data(), take(n * sizeof(T)).data(), n * sizeof(T));
    return values;
  }
  std::string get_string() {
    const auto n = get<uint64_t>();
    const auto text = take(n);
    return {reinterpret_cast<const char*>(text.data()), text.size()};
  }
  bool at_end() const { return rest_.empty(); }

 private:
  std::span<const std::byte> take(uint64_t n) {
    check(n <= rest_.size(), "message ends ", n - rest_.size(), " bytes early");
    const auto head = rest_.first(n);
    rest_ = rest_.subspan(n);
    return head;
  }
  std::span<const std::byte> rest_;
};

}  // namespace lockstep
