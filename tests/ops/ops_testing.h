// What the tests of ops share: seeded values, matrices with padding around them, comparison within a tolerance that is
// computed. Where they run: devices.h.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/philox.h"
#include "ops/ops.h"
#include "tests/reference/ops_reference.h"

namespace lockstep {

inline float rounded(float x, DType dtype) {  // to bf16: nearest, ties to even
  if (dtype == DType::f32) return x;
  auto u = std::bit_cast<uint32_t>(x);
  const uint32_t rest = u & 0xFFFF;
  u -= rest;
  if (rest > 0x8000 || (rest == 0x8000 && (u & 0x10000))) u += 0x10000;
  return std::bit_cast<float>(u);
}

// About uniform in (-scale, scale), representable in dtype; the same for one seed everywhere.
inline std::vector<float> random_values(int64_t n, uint64_t seed, DType dtype, float scale = 1.0f) {
  std::vector<float> values(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t word = philox4x32(seed, {static_cast<uint32_t>(i / 4), 0, 0, 77})[i % 4];
    values[i] = rounded((2.0f * uniform_open(word) - 1.0f) * scale, dtype);
  }
  return values;
}

inline reference::Vector as_double(const std::vector<float>& v) { return {v.begin(), v.end()}; }

// Columns to spare beside a matrix of so many: on the CPU an odd number; elsewhere rows begin at multiples of 8 elements.
inline int64_t spare_columns(const Ops& ops, int64_t cols) {
  return ops.kernel_class().starts_with("cpu") ? 3 : 8 + (8 - cols % 8) % 8;
}

// A matrix of the Ops' memory with some columns to spare on the right, which `intact` guards. The host reaches that memory by
// upload and download alone.
class Matrix {
 public:
  Matrix(Ops& ops, DType dtype, int64_t rows, int64_t cols, const std::vector<float>& values = {}, int64_t spare = -1)
      : ops_(&ops) {
    const int64_t stride = cols + (spare < 0 ? spare_columns(ops, cols) : spare);
    buffer_ = ops.allocate(static_cast<size_t>(rows * stride) * size_of(dtype));
    view = {buffer_.data(), dtype, rows, cols, stride};
    ops.upload(whole(), std::vector<float>(static_cast<size_t>(rows * stride), guard()).data());
    if (!values.empty()) ops.upload(view, values.data());
  }
  std::vector<float> values() const {
    std::vector<float> out(static_cast<size_t>(view.rows * view.cols));
    ops_->download(out.data(), view);
    return out;
  }
  bool intact() const {
    std::vector<float> all(static_cast<size_t>(view.rows * view.row_stride));
    ops_->download(all.data(), whole());
    for (int64_t r = 0; r < view.rows; ++r) {
      for (int64_t i = view.cols; i < view.row_stride; ++i) {
        if (std::bit_cast<uint32_t>(all[r * view.row_stride + i]) != std::bit_cast<uint32_t>(guard())) return false;
      }
    }
    return true;
  }
  TensorView view;

 private:
  TensorView whole() const { return {view.data, view.dtype, view.rows, view.row_stride, view.row_stride}; }
  float guard() const { return std::bit_cast<float>(view.dtype == DType::f32 ? 0xA5A5A5A5u : 0xA5A50000u); }

  Ops* ops_;
  Buffer buffer_;
};

inline TensorView rows_of(TensorView v, Range rows) {
  check(0 <= rows.begin && rows.end <= v.rows, "rows ", rows.begin, " to ", rows.end, " of ", v.rows);
  return {v.data + rows.begin * v.row_stride * static_cast<int64_t>(size_of(v.dtype)), v.dtype, rows.size(), v.cols,
          v.row_stride};
}

inline constexpr double kEps32 = 0x1p-24;  // half a unit in the last place of 1
inline double half_ulp(DType dtype) { return dtype == DType::f32 ? 0x1p-24 : 0x1p-8; }

// Each |got - want| <= tolerance[i]; the worst element is reported with its share of the tolerance.
inline ::testing::AssertionResult close_to(const std::vector<float>& got, const reference::Vector& want,
                                           const reference::Vector& tolerance) {
  if (got.size() != want.size()) return ::testing::AssertionFailure() << got.size() << " values, expected " << want.size();
  size_t worst = 0;
  double worst_share = -1;
  for (size_t i = 0; i < got.size(); ++i) {
    const double off = std::abs(static_cast<double>(got[i]) - want[i]);
    const double share = off == 0 ? 0 : off / tolerance[i];
    if (!(share <= worst_share)) worst = i, worst_share = share;
    if (std::isnan(share)) break;
  }
  if (got.empty() || worst_share <= 1) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "[" << worst << "] got " << got[worst] << ", want " << want[worst] << ", "
                                       << worst_share << " of tolerance " << tolerance[worst];
}

inline bool same_bytes(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

inline LinearWeight load(Ops& ops, DType dtype, int64_t n_out, int64_t k, const std::vector<float>& w, Range rows = {0, -1}) {
  if (rows.end < 0) rows.end = n_out;
  return ops.load_linear(rows.size(), k, dtype, [&](Range r, float* out) {
    std::memcpy(out, w.data() + (rows.begin + r.begin) * k, static_cast<size_t>(r.size() * k) * sizeof(float));
  });
}

// Sequences of so many tokens each (at most a page), from position 0, sequence s in page s; token ids 0.
inline StepBatch short_sequences(int64_t step, const std::vector<int32_t>& lengths) {
  StepBatch batch;
  batch.step = step;
  batch.q_offsets = batch.page_offsets = {0};
  for (size_t s = 0; s < lengths.size(); ++s) {
    for (int32_t p = 0; p < lengths[s]; ++p) batch.positions.push_back(p);
    batch.kv_lengths.push_back(lengths[s]);
    batch.q_offsets.push_back(static_cast<int32_t>(batch.positions.size()));
    batch.pages.push_back(static_cast<PageId>(s));
    batch.page_offsets.push_back(static_cast<int32_t>(s + 1));
  }
  batch.token_ids.assign(batch.positions.size(), 0);
  return batch;
}

}  // namespace lockstep
