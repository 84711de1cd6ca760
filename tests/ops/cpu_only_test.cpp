// What only the CPU's Ops have: instruction sets by name, adjustments that can be asked by themselves; and that the walls
// around `Apart` hold.
#include "ops/cpu/adjustments.h"
#include "tests/ops/devices.h"

namespace lockstep {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(MakeCpuOps, RefusesUnknownInstructionSets) {
  for (const char* name : {"avx", "neon", "AVX2"}) {
    try {
      make_cpu_ops({.n_threads = 1, .n_slots = 1, .instruction_set = name});
      FAIL() << name;
    } catch (const Error& e) {
      EXPECT_EQ(e.code, ExitCode::usage);
    }
  }
  EXPECT_THROW(make_cpu_ops({.n_threads = 0, .n_slots = 1, .instruction_set = ""}), Error);
}

std::vector<float> adjusted(const SlotAdjustments& a, std::vector<float> logits, int32_t position) {
  a.apply(logits.data(), static_cast<int64_t>(logits.size()), position);
  return logits;
}

TEST(Adjustments, EachByItself) {
  const std::vector<float> logits = {4, -4, 8, 2, 0};
  LogitAdjustments a;
  a.bias = {{1, 10}, {1, 1}, {4, -kInf}};
  EXPECT_EQ(adjusted(SlotAdjustments(a), logits, 0), (std::vector<float>{4, 7, 8, 2, -kInf}));
  a = {};
  a.repetition_penalty = 2;
  a.prompt = {0, 0, 1}, a.completion = {3, 3};
  EXPECT_EQ(adjusted(SlotAdjustments(a), logits, 0), (std::vector<float>{2, -8, 8, 1, 0}));  // once a token, not once a time
  a = {};
  a.frequency_penalty = 0.5f, a.prompt = {0}, a.completion = {3, 3, 2};
  EXPECT_EQ(adjusted(SlotAdjustments(a), logits, 0), (std::vector<float>{4, -4, 7.5f, 1, 0}));  // the prompt doesn't count
  a.frequency_penalty = 0, a.presence_penalty = 0.5f;
  EXPECT_EQ(adjusted(SlotAdjustments(a), logits, 0), (std::vector<float>{4, -4, 7.5f, 1.5f, 0}));
  a = {};
  a.min_tokens = 2, a.end_tokens = {0, 2};
  EXPECT_EQ(adjusted(SlotAdjustments(a), logits, 1), (std::vector<float>{-kInf, -4, -kInf, 2, 0}));
  EXPECT_EQ(adjusted(SlotAdjustments(a), logits, 2), logits);
  a.bias = {{5, 1}};
  EXPECT_THROW(adjusted(SlotAdjustments(a), logits, 0), Error);
}

TEST(ApartOps, TheHostReachesNoMemoryOfThem) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto ops = make_apart_ops(make_cpu_ops({.n_threads = 1, .n_slots = 1, .instruction_set = ""}));
  const Matrix m(*ops, DType::f32, 1, 8, std::vector<float>(8, 2.0f));
  EXPECT_EQ(m.values(), std::vector<float>(8, 2.0f));
  EXPECT_DEATH({ *const_cast<volatile std::byte*>(m.view.data) = std::byte{1}; }, "");
  const LinearWeight weight = load(*ops, DType::bf16, 8, 8, std::vector<float>(64, 1.0f));
  EXPECT_DEATH({ *const_cast<volatile std::byte*>(weight.data.data()) = std::byte{1}; }, "");
  StepBatch batch = short_sequences(1, {1});
  batch.samples = {{}};
  const DeviceBatch device = ops->upload_batch(batch);
  EXPECT_DEATH({ [[maybe_unused]] volatile int32_t row = *const_cast<const volatile int32_t*>(device.sample_rows); }, "");
}

TEST(ApartOps, RefuseWhatAGpuWould) {
  const auto ops = make_apart_ops(make_cpu_ops({.n_threads = 1, .n_slots = 1, .instruction_set = ""}));
  const Matrix narrow(*ops, DType::bf16, 2, 12), wide(*ops, DType::bf16, 2, 16), f32(*ops, DType::f32, 2, 16);
  const Matrix w12(*ops, DType::f32, 1, 12), w16(*ops, DType::f32, 1, 16), odd(*ops, DType::bf16, 2, 16, {}, 3);
  EXPECT_NO_THROW(ops->rms_norm(wide.view, wide.view, w16.view, 1));
  EXPECT_THROW(ops->rms_norm(narrow.view, narrow.view, w12.view, 1), Error);
  EXPECT_THROW(ops->rms_norm(odd.view, wide.view, w16.view, 1), Error);
  EXPECT_THROW(ops->rms_norm(f32.view, f32.view, w16.view, 1), Error);
  std::vector<float> on_host(32);
  const TensorView elsewhere{reinterpret_cast<std::byte*>(on_host.data()), DType::bf16, 2, 16, 16};
  EXPECT_THROW(ops->add(wide.view, elsewhere), Error);
  EXPECT_THROW(ops->add(wide.view, {wide.view.data, DType::bf16, 2, 16, 40}), Error);  // beyond its end
  EXPECT_THROW(ops->load_linear(8, 12, DType::bf16, [](Range, float*) {}), Error);
  StepBatch batch = short_sequences(1, {2});
  const DeviceBatch device = ops->upload_batch(batch);
  EXPECT_THROW(ops->embed(wide.view, odd.view, device), Error);
  const int32_t rows[] = {0, 1};
  EXPECT_THROW(ops->gather_rows(wide.view, wide.view, rows), Error);
}

}  // namespace
}  // namespace lockstep
