#include "comm/packing.h"

#include <cstring>

namespace lockstep {

void pack(std::byte* to, TensorView from) {
  const size_t row_bytes = static_cast<size_t>(from.cols) * size_of(from.dtype);
  if (row_bytes == 0) return;
  if (is_contiguous(from)) {
    if (from.rows > 0) std::memcpy(to, from.data, row_bytes * static_cast<size_t>(from.rows));
    return;
  }
  const size_t stride_bytes = static_cast<size_t>(from.row_stride) * size_of(from.dtype);
  for (int64_t r = 0; r < from.rows; ++r) std::memcpy(to + r * row_bytes, from.data + r * stride_bytes, row_bytes);
}

void unpack(TensorView to, std::span<const std::byte> from) {
  if (from.size() != packed_bytes(to))
    fail(ExitCode::communication, "matrix [", to.rows, ", ", to.cols, "] ", name_of(to.dtype), " expected, ", from.size(),
         " bytes came");
  const size_t row_bytes = static_cast<size_t>(to.cols) * size_of(to.dtype);
  if (row_bytes == 0) return;
  if (is_contiguous(to)) {
    if (to.rows > 0) std::memcpy(to.data, from.data(), from.size());
    return;
  }
  const size_t stride_bytes = static_cast<size_t>(to.row_stride) * size_of(to.dtype);
  for (int64_t r = 0; r < to.rows; ++r) std::memcpy(to.data + r * stride_bytes, from.data() + r * row_bytes, row_bytes);
}

void check_ranges(TensorView matrix, std::span<const Range> ranges, int n_ranks) {
  check(ranges.size() == static_cast<size_t>(n_ranks), ranges.size(), " column ranges for ", n_ranks, " ranks");
  for (const Range& c : ranges)
    check(0 <= c.begin && c.begin <= c.end && c.end <= matrix.cols, "columns ", c.begin, "..", c.end, " of ", matrix.cols);
}

}  // namespace lockstep
