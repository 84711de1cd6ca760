// What only Ops on a GPU have: a name that says which, and what they refuse. The rest is in tests/ops, one body for all
// devices. Skipped visibly where there is no GPU.
#include "tests/ops/attention_layer.h"
#include "tests/ops/devices.h"

namespace lockstep {
namespace {

using CudaOpsTest = OpsTest;

TEST(MakeCudaOps, WithoutAGpuIsAnError) {
  if (n_gpus() > 0) GTEST_SKIP() << "there is one";
  EXPECT_THROW(make_cuda_ops({.device = 0, .n_slots = 1}), Error);
}

TEST_P(CudaOpsTest, NamesTheGpuAndTheLibrary) {
  const std::string name = ops->kernel_class();
  EXPECT_TRUE(name.starts_with("cuda-bf16 ")) << name;
  EXPECT_NE(name.find("cublasLt "), std::string::npos) << name;
  EXPECT_EQ(name, make_ops(GetParam(), 1)->kernel_class());
}

TEST_P(CudaOpsTest, RefusesOtherTypesThanBf16) {
  const Matrix f32(*ops, DType::f32, 2, 16), bf16 = matrix(2, 16), wide(*ops, DType::f32, 2, 32);
  const Matrix weight = weights(std::vector<float>(16, 1.0f));
  EXPECT_THROW(ops->rms_norm(f32.view, f32.view, weight.view, 0), Error);
  EXPECT_THROW(ops->rms_norm(bf16.view, bf16.view, bf16.view.top(1), 0), Error);
  EXPECT_THROW(ops->add(bf16.view, f32.view), Error);
  EXPECT_THROW(ops->add_rms_norm(bf16.view, bf16.view, f32.view, weight.view, 0), Error);
  EXPECT_THROW(ops->silu_mul(f32.view, wide.view), Error);
  EXPECT_THROW(ops->load_linear(16, 16, DType::f32, [](Range, float*) {}), Error);
  EXPECT_THROW(ops->linear(bf16.view, f32.view, load(*ops, DType::bf16, 16, 16, std::vector<float>(256, 1.0f))), Error);
  EXPECT_THROW(ops->kv_page_bytes(DType::f32, 2, 64), Error);
  StepBatch batch = short_sequences(1, {2});
  batch.samples = {{.row = 0}, {.row = 1}};
  const DeviceBatch device = ops->upload_batch(batch);
  EXPECT_THROW(ops->embed(f32.view, f32.view, device), Error);
  EXPECT_THROW(ops->gather_rows(f32.view, f32.view, device.sample_rows), Error);
  EXPECT_THROW(ops->sample(bf16.view, device), Error);
}

TEST_P(CudaOpsTest, RefusesColumnsThatDoNotComeInEights) {
  const Matrix narrow = matrix(2, 12), weight = weights(std::vector<float>(12, 1.0f));
  EXPECT_THROW(ops->rms_norm(narrow.view, narrow.view, weight.view, 0), Error);
  EXPECT_THROW(ops->add_rms_norm(narrow.view, narrow.view, narrow.view, weight.view, 0), Error);
  EXPECT_THROW(ops->load_linear(16, 12, DType::bf16, [](Range, float*) {}), Error);
}

TEST_P(CudaOpsTest, RefusesATableWithGaps) {
  const Matrix table = matrix(3, 16), out = matrix(1, 16);
  const StepBatch batch = short_sequences(1, {1});
  EXPECT_THROW(ops->embed(out.view, table.view, ops->upload_batch(batch)), Error);
}

TEST_P(CudaOpsTest, RefusesHeadsOfOtherSizes) {
  for (const int64_t d : {8, 24, 48, 80, 96, 256}) {
    const HeadShape heads{2, 1, d};
    const Sequences sequences(*ops, dtype, heads, {3}, 1);
    const StepBatch batch = sequences.batch({{0, 3}});
    const Matrix qkv = matrix(3, heads.qkv_cols()), out = matrix(3, 2 * d), rope(*ops, DType::f32, 3, d, {}, 0);
    const DeviceBatch device = ops->upload_batch(batch);
    EXPECT_THROW(ops->rope_store_kv(qkv.view, {}, {}, 0, rope.view, heads, sequences.kv, device), Error) << d;
    EXPECT_THROW(ops->attention(out.view, qkv.view, heads, sequences.kv, 1, 0, device), Error) << d;
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, CudaOpsTest, cuda_cases(), case_name);

}  // namespace
}  // namespace lockstep
