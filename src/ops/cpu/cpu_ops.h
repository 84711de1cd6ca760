// Ops on the CPU: checks what callers give, lays weights and pages out, divides the work over threads; the arithmetic is in
// kernels.h. Bits don't depend on threads, instruction set, or how rows are grouped: each output element is one fixed sequence
// of IEEE operations (kernels_*.inc state it). Made by make_cpu_ops (ops.h); this header is for the folder's own files.
//
// Weights are packed as [n_out / 32][k][32], the last panel padded with zeros; pages as kernels.h says.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "ops/cpu/adjustments.h"
#include "ops/cpu/host_memory.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/sampler.h"
#include "ops/cpu/thread_pool.h"
#include "ops/ops.h"

namespace lockstep {

class CpuOps final : public Ops {
 public:
  explicit CpuOps(const CpuOptions& options);

  std::string kernel_class() const override { return "cpu-f32-fma"; }

  Buffer allocate(size_t bytes) override;
  Buffer allocate_host(size_t bytes) override { return HostMemory().allocate(bytes); }  // its own: from any thread
  void upload(TensorView to, const float* from) override;
  void download(float* to, TensorView from) override;
  LinearWeight load_linear(int64_t n_out, int64_t k, DType dtype, const RowReader& read_rows) override;
  size_t kv_page_bytes(DType dtype, int64_t n_kv_heads, int64_t head_dim) const override;
  void copy_pages(PageWay way, const KvPool& pool, std::span<const HostPage> pages) override;

  DeviceBatch upload_batch(const StepBatch& batch) override;
  void embed(TensorView out, TensorView table, const DeviceBatch& batch) override;
  void rms_norm(TensorView out, TensorView x, TensorView weight, float eps) override;
  void add(TensorView residual, TensorView delta) override;
  void add_rms_norm(TensorView out, TensorView residual, TensorView delta, TensorView weight, float eps) override;
  void linear(TensorView out, TensorView x, const LinearWeight& weight) override;
  void rope_store_kv(TensorView qkv, TensorView q_norm, TensorView k_norm, float eps, TensorView rope, HeadShape heads,
                     KvPages kv, const DeviceBatch& batch) override;
  void attention(TensorView out, TensorView qkv, HeadShape heads, KvPages kv, float scale, int32_t window,
                 const DeviceBatch& batch) override;
  void silu_mul(TensorView out, TensorView gate_up) override;
  void gather_rows(TensorView out, TensorView x, const int32_t* rows) override;
  void sample(TensorView logits, const DeviceBatch& batch) override;
  void score(TensorView logits, const DeviceBatch& batch, Range scores) override;
  StepOutcome collect(int64_t step) override;

 private:
  struct Scratch {  // of one thread
    std::vector<float> a, b, c;
    SamplerScratch sampler;
  };
  StepOutcome& outcome_of(int64_t step);
  void check_pages(const KvPages& kv, HeadShape heads, const DeviceBatch& batch) const;

  HostMemory memory_;
  const CpuKernels& kernels_;
  ThreadPool pool_;
  std::vector<Scratch> scratch_;                   // [n_threads]
  std::vector<float> packed_;                      // rows of x, interleaved by tile
  std::vector<TokenId> slots_;                     // [n_slots] the sample buffer; -1: nothing sampled yet
  PageId last_page_ = -1;                          // the largest page number of the batch
  std::vector<int32_t> sequence_of_;               // [n_tokens] of the batch
  std::vector<int32_t> sample_rows_, score_rows_;  // of the batch
  std::vector<SlotAdjustments> adjustments_;       // [n_slots]
  struct Outcome {
    int64_t step;
    StepOutcome tokens;
  };
  std::deque<Outcome> outcomes_;
  int64_t collected_ = -1;  // the last step collected
};

}  // namespace lockstep
