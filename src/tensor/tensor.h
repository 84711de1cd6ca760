// What a tensor is here: a typed view of bytes that somebody else owns, and the move-only buffer that owns them.
// Activations are matrices [rows, cols] with a row stride, so that a rank can write its column slab of a wider matrix.
// Not for: arithmetic (ops/), files (checkpoint/).
//
// Dimension names, used everywhere: n_tokens (of a step), n_seqs, hidden, n_heads, n_kv_heads, head_dim, ffn, vocab;
// with `_local` for this rank's share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "base/error.h"

namespace lockstep {

enum class DType : uint8_t { f32, bf16 };

constexpr size_t size_of(DType t) { return t == DType::f32 ? 4 : 2; }
constexpr std::string_view name_of(DType t) { return t == DType::f32 ? "f32" : "bf16"; }

// A half-open range of columns, rows, heads, layers: [begin, end).
struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

struct TensorView {
  std::byte* data = nullptr;
  DType dtype = DType::f32;
  int64_t rows = 0, cols = 0;
  int64_t row_stride = 0;  // elements from one row to the next, >= cols

  template <class T>
  T* row(int64_t r) const {
    return reinterpret_cast<T*>(data) + r * row_stride;
  }
  TensorView columns(Range c) const {
    check(0 <= c.begin && c.begin <= c.end && c.end <= cols, "columns ", c.begin, "..", c.end, " of ", cols);
    return {data + c.begin * static_cast<int64_t>(size_of(dtype)), dtype, rows, c.size(), row_stride};
  }
  TensorView part(Range r) const {  // its rows
    check(0 <= r.begin && r.begin <= r.end && r.end <= rows, "rows ", r.begin, "..", r.end, " of ", rows);
    return {data + r.begin * row_stride * static_cast<int64_t>(size_of(dtype)), dtype, r.size(), cols, row_stride};
  }
  TensorView top(int64_t n) const { return part({0, n}); }
};

// Bytes taken from a device (or the host) and given back at scope end.
class Buffer {
 public:
  using Release = void (*)(void*);
  Buffer() = default;
  Buffer(void* data, size_t bytes, Release release) : data_(data, release), bytes_(bytes) {}

  std::byte* data() const { return static_cast<std::byte*>(data_.get()); }
  size_t bytes() const { return bytes_; }
  TensorView matrix(DType dtype, int64_t rows, int64_t cols) const {
    check(static_cast<size_t>(rows) * cols * size_of(dtype) <= bytes_, "matrix ", rows, " x ", cols, " in ", bytes_, " bytes");
    return {data(), dtype, rows, cols, cols};
  }

 private:
  std::unique_ptr<void, Release> data_{nullptr, +[](void*) {}};
  size_t bytes_ = 0;
};

// An ordered queue of work on a device; null on the CPU, where calls return when their work is done.
struct StreamRef {
  void* handle = nullptr;
};

}  // namespace lockstep
