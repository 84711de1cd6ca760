// What the tests of ops share: seeded values, matrices with padding around them, comparison within a tolerance that is
// computed.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
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

// A matrix of the Ops' memory with some columns to spare on the right, which `intact` guards.
class Matrix {
 public:
  Matrix(Ops& ops, DType dtype, int64_t rows, int64_t cols, int64_t spare = 3)
      : ops_(&ops), buffer_(ops.allocate(static_cast<size_t>(rows * (cols + spare) + 1) * size_of(dtype))), spare_(spare) {
    std::memset(buffer_.data(), 0xA5, buffer_.bytes());
    view = {buffer_.data(), dtype, rows, cols, cols + spare};
  }
  Matrix(Ops& ops, DType dtype, int64_t rows, int64_t cols, const std::vector<float>& values) : Matrix(ops, dtype, rows, cols) {
    ops.upload(view, values.data());
  }
  std::vector<float> values() const {
    std::vector<float> out(static_cast<size_t>(view.rows * view.cols));
    ops_->download(out.data(), view);
    return out;
  }
  bool intact() const {
    const auto size = static_cast<int64_t>(size_of(view.dtype));
    for (int64_t r = 0; r < view.rows; ++r) {
      for (int64_t i = view.cols * size; i < (view.cols + spare_) * size; ++i) {
        if (view.data[r * view.row_stride * size + i] != std::byte{0xA5}) return false;
      }
    }
    return true;
  }
  TensorView view;

 private:
  Ops* ops_;
  Buffer buffer_;
  int64_t spare_;
};

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

// The instruction sets of this machine.
inline std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  for (const char* name : {"generic", "avx2", "avx512"}) {
    try {
      make_cpu_ops({.n_threads = 1, .n_slots = 1, .instruction_set = name});
      names.emplace_back(name);
    } catch (const Error&) {
    }
  }
  return names;
}

struct OpsCase {
  std::string instruction_set;
  DType dtype;
};
class OpsTest : public ::testing::TestWithParam<OpsCase> {
 protected:
  std::unique_ptr<Ops> ops = make_cpu_ops({.n_threads = 2, .n_slots = 8, .instruction_set = GetParam().instruction_set});
  DType dtype = GetParam().dtype;
  Matrix matrix(int64_t rows, int64_t cols, const std::vector<float>& values) { return {*ops, dtype, rows, cols, values}; }
  Matrix matrix(int64_t rows, int64_t cols) { return {*ops, dtype, rows, cols}; }
  Matrix weights(const std::vector<float>& values) {
    return {*ops, DType::f32, 1, static_cast<int64_t>(values.size()), values};
  }
};
inline std::vector<OpsCase> ops_cases() {
  std::vector<OpsCase> cases;
  for (const auto& name : instruction_sets()) {
    for (const DType dtype : {DType::f32, DType::bf16}) cases.push_back({name, dtype});
  }
  return cases;
}
inline std::string case_name(const ::testing::TestParamInfo<OpsCase>& info) {
  return info.param.instruction_set + "_" + std::string(name_of(info.param.dtype));
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

inline constexpr int64_t kOddSizes[] = {1, 2, 3, 31, 32, 33, 127, 129};

}  // namespace lockstep
