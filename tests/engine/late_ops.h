// Ops whose steps take until a condition holds: a device that computes while the host goes on.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "ops/ops.h"

namespace lockstep {

class LateOps final : public Ops {
 public:
  LateOps(std::unique_ptr<Ops> inner, std::function<bool()> is_over) : inner_(std::move(inner)), is_over_(std::move(is_over)) {}

  bool is_done(int64_t) override { return is_over_(); }

  std::string kernel_class() const override { return inner_->kernel_class(); }
  Buffer allocate(size_t bytes) override { return inner_->allocate(bytes); }
  Buffer allocate_host(size_t bytes) override { return inner_->allocate_host(bytes); }
  void upload(TensorView to, const float* from) override { inner_->upload(to, from); }
  void download(float* to, TensorView from) override { inner_->download(to, from); }
  LinearWeight load_linear(int64_t n_out, int64_t k, DType dtype, const RowReader& read_rows) override {
    return inner_->load_linear(n_out, k, dtype, read_rows);
  }
  size_t kv_page_bytes(DType dtype, int64_t n_kv_heads, int64_t head_dim) const override {
    return inner_->kv_page_bytes(dtype, n_kv_heads, head_dim);
  }
  void copy_pages(PageWay way, const KvPool& pool, std::span<const HostPage> pages) override {
    inner_->copy_pages(way, pool, pages);
  }
  DeviceBatch upload_batch(const StepBatch& batch) override { return inner_->upload_batch(batch); }
  void embed(TensorView out, TensorView table, const DeviceBatch& batch) override { inner_->embed(out, table, batch); }
  void rms_norm(TensorView out, TensorView x, TensorView weight, float eps) override { inner_->rms_norm(out, x, weight, eps); }
  void add(TensorView residual, TensorView delta) override { inner_->add(residual, delta); }
  void add_rms_norm(TensorView out, TensorView residual, TensorView delta, TensorView weight, float eps) override {
    inner_->add_rms_norm(out, residual, delta, weight, eps);
  }
  void linear(TensorView out, TensorView x, const LinearWeight& weight) override { inner_->linear(out, x, weight); }
  void rope_store_kv(TensorView qkv, TensorView q_norm, TensorView k_norm, float eps, TensorView rope, HeadShape heads,
                     KvPages kv, const DeviceBatch& batch) override {
    inner_->rope_store_kv(qkv, q_norm, k_norm, eps, rope, heads, kv, batch);
  }
  void attention(TensorView out, TensorView qkv, HeadShape heads, KvPages kv, float scale, int32_t window,
                 const DeviceBatch& batch) override {
    inner_->attention(out, qkv, heads, kv, scale, window, batch);
  }
  void silu_mul(TensorView out, TensorView gate_up) override { inner_->silu_mul(out, gate_up); }
  void gather_rows(TensorView out, TensorView x, const int32_t* rows) override { inner_->gather_rows(out, x, rows); }
  void sample(TensorView logits, const DeviceBatch& batch) override { inner_->sample(logits, batch); }
  void score(TensorView logits, const DeviceBatch& batch, Range scores) override { inner_->score(logits, batch, scores); }
  StepOutcome collect(int64_t step) override { return inner_->collect(step); }

 private:
  std::unique_ptr<Ops> inner_;
  std::function<bool()> is_over_;
};

}  // namespace lockstep
