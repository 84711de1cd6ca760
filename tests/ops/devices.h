// Where the tests of ops run: one body for each device. `Cpu/...` on the CPU, for each instruction set; `Apart/...` on the CPU
// behind a GPU's walls (apart_ops.h), with what a test would give a GPU; `Cuda/...` on a GPU, in the program that is compiled
// with LOCKSTEP_TEST_CUDA, skipped visibly without one.
//   using Rows = OpsTest;
//   TEST_P(Rows, AddsNothing) { Matrix out = matrix(2, fit(33)); ops->add(out.view, ...); }
//   INSTANTIATE_TEST_SUITE_P(Cpu, Rows, cpu_cases(), case_name);   and Apart, Cuda
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/ops/ops_testing.h"
#ifdef LOCKSTEP_TEST_CUDA
#include "ops/cuda/cuda_device.h"
#else
#include "tests/ops/apart_ops.h"
#endif

namespace lockstep {

enum class Device { cpu, apart, cuda };

struct OpsCase {
  std::string name;
  Device device = Device::cpu;
  std::string instruction_set;  // of the CPU
  DType dtype = DType::f32;
};

#ifdef LOCKSTEP_TEST_CUDA
inline std::vector<std::string> instruction_sets() { return {}; }
inline std::unique_ptr<Ops> make_ops(const OpsCase&, int n_slots, int = 0) {
  return make_cuda_ops({.device = 0, .n_slots = n_slots});
}
#else
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
inline std::unique_ptr<Ops> make_ops(const OpsCase& c, int n_slots, int n_threads = 2) {
  auto ops = make_cpu_ops({.n_threads = n_threads, .n_slots = n_slots, .instruction_set = c.instruction_set});
  return c.device == Device::apart ? make_apart_ops(std::move(ops)) : std::move(ops);
}
#endif

inline auto cpu_cases() {
  std::vector<OpsCase> cases;
  for (const auto& name : instruction_sets()) {
    for (const DType dtype : {DType::f32, DType::bf16})
      cases.push_back({name + "_" + std::string(name_of(dtype)), Device::cpu, name, dtype});
  }
  return ::testing::ValuesIn(cases);
}
inline auto sampling_cpu_cases() {  // logits are always f32
  std::vector<OpsCase> cases;
  for (const auto& name : instruction_sets()) cases.push_back({name, Device::cpu, name, DType::f32});
  return ::testing::ValuesIn(cases);
}
inline auto apart_cases() {
  std::vector<OpsCase> cases;
  if (!instruction_sets().empty()) cases.push_back({"bf16", Device::apart, "", DType::bf16});
  return ::testing::ValuesIn(cases);
}
inline auto cuda_cases() {
  std::vector<OpsCase> cases;
#ifdef LOCKSTEP_TEST_CUDA
  cases.push_back({"bf16", Device::cuda, "", DType::bf16});
#endif
  return ::testing::ValuesIn(cases);
}
inline std::string case_name(const ::testing::TestParamInfo<OpsCase>& info) { return info.param.name; }
inline void PrintTo(const OpsCase& c, std::ostream* out) { *out << c.name; }

inline constexpr int64_t kOddSizes[] = {1, 2, 3, 31, 32, 33, 127, 129};

class OpsTest : public ::testing::TestWithParam<OpsCase> {
 protected:
  explicit OpsTest(int n_slots = 8) : n_slots_(n_slots) {}
  void SetUp() override {
#ifdef LOCKSTEP_TEST_CUDA
    if (n_gpus() == 0) GTEST_SKIP() << "no GPU";
#endif
    ops = make_ops(GetParam(), n_slots_);
  }

  // What a GPU takes: bf16, matrices whose columns come in eights, heads of some sizes. `on_gpu`: there is one.
  bool like_gpu() const { return GetParam().device != Device::cpu; }
  bool on_gpu() const { return GetParam().device == Device::cuda; }
  int64_t fit(int64_t n) const { return like_gpu() ? (n + 7) / 8 * 8 : n; }  // the next size that the device takes
  std::vector<int64_t> sizes() const {
    std::vector<int64_t> out;
    for (const int64_t n : kOddSizes) out.push_back(fit(n));
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
  }

  // Other Ops that give the same bits: f(ops, which). On the CPU each instruction set with 1 to 3 threads, on a GPU a second
  // one, which chooses its products anew.
  template <class F>
  void with_others(F f) {
    if (like_gpu()) return f(*make_ops(GetParam(), n_slots_, 3), "another");
    for (const auto& name : instruction_sets()) {
      for (const int n_threads : {1, 2, 3})
        f(*make_ops({"", Device::cpu, name, dtype}, n_slots_, n_threads), concat(name, ", ", n_threads, " threads"));
    }
  }

  Matrix matrix(int64_t rows, int64_t cols, const std::vector<float>& values = {}) { return {*ops, dtype, rows, cols, values}; }
  Matrix weights(const std::vector<float>& values) {
    return {*ops, DType::f32, 1, static_cast<int64_t>(values.size()), values};
  }
  Buffer bias(const std::vector<float>& values) {
    Buffer buffer = ops->allocate(values.size() * sizeof(float));
    ops->upload(buffer.matrix(DType::f32, 1, static_cast<int64_t>(values.size())), values.data());
    return buffer;
  }

  std::unique_ptr<Ops> ops;
  DType dtype = GetParam().dtype;

 private:
  int n_slots_;
};

}  // namespace lockstep
