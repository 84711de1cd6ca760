#include "ops/cuda/cuda_ops.h"

#include <algorithm>
#include <cstring>

#include "kernels/rms_norm.h"
#include "kernels/rope_kv.h"
#include "kernels/rows.h"
#include "ops/cuda/cuda_device.h"

namespace lockstep {
namespace {

static_assert(kernels::kPagePositions == kPageSize);

__nv_bfloat16* bf16(const TensorView& v) { return reinterpret_cast<__nv_bfloat16*>(v.data); }
int stride_of(const TensorView& v) { return static_cast<int>(v.row_stride); }
int count(int64_t n) { return static_cast<int>(n); }

constexpr size_t kLoadBytes = size_t{32} << 20;
constexpr int kKernelBits = 3;  // counts up when a change of kernels/ changes bits, so that no journal mixes the two

std::string kernel_class_of(int device) {
  return concat("cuda-bf16 ", gpu_name(device), " cublasLt ", CublasLt::version(), " kernels ", kKernelBits);
}

}  // namespace

std::unique_ptr<Ops> make_cuda_ops(const CudaOptions& options) { return std::make_unique<CudaOps>(options); }

CudaOps::CudaOps(const CudaOptions& options)
    : device_(options.device),
      stream_(options.device),
      side_{Stream(options.device, Stream::Kind::urgent), Stream(options.device, Stream::Kind::urgent)},
      gemm_(options.device, stream_),
      n_slots_(options.n_slots),
      most_recorded_(options.graphs ? std::min<int64_t>(options.n_slots, options.max_tokens) : 0),
      staging_(stream_),
      work_staging_(stream_),
      sample_staging_(stream_) {
  kernel_class_ = kernel_class_of(options.device);
  slots_ = allocate_on_gpu(static_cast<size_t>(n_slots_) * sizeof(int32_t));
  check_cuda(cudaMemsetAsync(slots_.data(), 0, slots_.bytes(), stream_), "clearing the sample buffer");
  wishes_.resize(static_cast<size_t>(n_slots_));
}

CudaOps::~CudaOps() { cudaStreamSynchronize(stream_); }

void CudaOps::check_bf16(const TensorView& v, const char* name) const {
  check(v.dtype == DType::bf16, name, " is ", name_of(v.dtype), ", on a GPU it is bf16");
}

// ---- memory ----

void CudaOps::upload(TensorView to, const float* from) {
  const auto cols = static_cast<size_t>(to.cols);
  if (to.dtype == DType::f32) {
    check_cuda(cudaMemcpy2DAsync(to.data, static_cast<size_t>(to.row_stride) * 4, from, cols * 4, cols * 4,
                                 static_cast<size_t>(to.rows), cudaMemcpyHostToDevice, stream_),
               "copying to the GPU");
  } else {
    const auto rows_a_time = std::max<int64_t>(1, static_cast<int64_t>(kLoadBytes / (cols * 4)));
    grow(load_device_[0], static_cast<size_t>(rows_a_time) * cols * 4, allocate_on_gpu);
    for (int64_t row = 0; row < to.rows; row += rows_a_time) {
      const int64_t n = std::min(rows_a_time, to.rows - row);
      check_cuda(cudaMemcpyAsync(load_device_[0].data(), from + row * to.cols, static_cast<size_t>(n) * cols * 4,
                                 cudaMemcpyHostToDevice, stream_),
                 "copying to the GPU");
      check_cuda(kernels::from_f32(bf16(to) + row * to.row_stride, stride_of(to),
                                   reinterpret_cast<const float*>(load_device_[0].data()), count(n), to.cols, stream_),
                 "rounding to bf16");
    }
  }
  check_cuda(cudaStreamSynchronize(stream_), "copying to the GPU");
}

void CudaOps::download(float* to, TensorView from) {
  const auto cols = static_cast<size_t>(from.cols), rows = static_cast<size_t>(from.rows);
  Buffer wide;  // until the copy is done
  if (from.dtype == DType::f32) {
    check_cuda(cudaMemcpy2DAsync(to, cols * 4, from.data, static_cast<size_t>(from.row_stride) * 4, cols * 4, rows,
                                 cudaMemcpyDeviceToHost, stream_),
               "copying from the GPU");
  } else {
    wide = allocate_on_gpu(rows * cols * 4);
    check_cuda(kernels::to_f32(reinterpret_cast<float*>(wide.data()), bf16(from), stride_of(from), count(from.rows), from.cols,
                               stream_),
               "widening to f32");
    check_cuda(cudaMemcpyAsync(to, wide.data(), rows * cols * 4, cudaMemcpyDeviceToHost, stream_), "copying from the GPU");
  }
  check_cuda(cudaStreamSynchronize(stream_), "copying from the GPU");
}

// Rows are read into pinned memory while the GPU takes in the ones before.
LinearWeight CudaOps::load_linear(int64_t n_out, int64_t k, DType dtype, const RowReader& read_rows) {
  check(dtype == DType::bf16, "weights of ", name_of(dtype), ", on a GPU they are bf16");
  check(n_out >= 1 && k >= 1 && k % 8 == 0 && k < int64_t{1} << 24, "weight of ", n_out, " x ", k,
        ": k must be a multiple of 8");
  LinearWeight weight{.n_out = n_out, .k = k, .dtype = dtype, .data = allocate(static_cast<size_t>(n_out * k) * 2), .bias = {}};
  const TensorView to = weight.data.matrix(DType::bf16, n_out, k);
  const int64_t rows_a_time = std::max<int64_t>(1, static_cast<int64_t>(kLoadBytes) / (k * 4));
  const size_t bytes = static_cast<size_t>(rows_a_time * k) * 4;
  for (int i = 0; i < 2; ++i) {
    load_events_[i].wait();
    grow(load_host_[i], bytes, allocate_pinned);
    grow(load_device_[i], bytes, allocate_on_gpu);
  }
  for (int64_t row = 0, i = 0; row < n_out; row += rows_a_time, i = 1 - i) {
    const int64_t n = std::min(rows_a_time, n_out - row);
    load_events_[i].wait();
    read_rows({row, row + n}, reinterpret_cast<float*>(load_host_[i].data()));
    check_cuda(cudaMemcpyAsync(load_device_[i].data(), load_host_[i].data(), static_cast<size_t>(n * k) * 4,
                               cudaMemcpyHostToDevice, stream_),
               "copying a weight to the GPU");
    check_cuda(kernels::from_f32(bf16(to) + row * k, count(k), reinterpret_cast<const float*>(load_device_[i].data()), count(n),
                                 k, stream_),
               "rounding a weight to bf16");
    load_events_[i].record(stream_);
  }
  return weight;
}

size_t CudaOps::kv_page_bytes(DType dtype, int64_t n_kv_heads, int64_t head_dim) const {
  check(dtype == DType::bf16, "KV pages of ", name_of(dtype), ", on a GPU they are bf16");
  return static_cast<size_t>(n_kv_heads) * 2 * kPageSize * static_cast<size_t>(head_dim) * 2;
}

// ---- one step ----

void CudaOps::embed(TensorView out, TensorView table, const DeviceBatch& batch) {
  check_bf16(out, "embedding"), check_bf16(table, "embedding table");
  check(out.rows == batch.n_rows && out.cols == table.cols && table.row_stride == table.cols, "embedding ", out.rows, " x ",
        out.cols, ", expected ", batch.n_rows, " x ", table.cols);
  check_cuda(kernels::embed(bf16(out), stride_of(out), bf16(table), count(table.cols), batch.token_ids,
                            reinterpret_cast<const int32_t*>(slots_.data()), count(out.rows), stream_),
             "embedding");
}

void CudaOps::rms_norm(TensorView out, TensorView x, TensorView weight, float eps) {
  check_bf16(out, "norm"), check_bf16(x, "norm's input");
  check(out.rows == x.rows && out.cols == x.cols && weight.cols == x.cols && weight.dtype == DType::f32 && x.cols % 8 == 0,
        "rms_norm of ", x.rows, " x ", x.cols, " into ", out.rows, " x ", out.cols);
  check_cuda(kernels::rms_norm(bf16(out), stride_of(out), bf16(x), stride_of(x), weight.row<float>(0), count(x.rows),
                               count(x.cols), eps, stream_),
             "rms_norm");
}

void CudaOps::add(TensorView residual, TensorView delta) {
  check_bf16(residual, "residual"), check_bf16(delta, "delta");
  check(residual.rows == delta.rows && residual.cols == delta.cols, "adding ", delta.rows, " x ", delta.cols, " to ",
        residual.rows, " x ", residual.cols);
  check_cuda(kernels::add(bf16(residual), stride_of(residual), bf16(delta), stride_of(delta), count(delta.rows),
                          count(delta.cols), stream_),
             "add");
}

void CudaOps::add_rms_norm(TensorView out, TensorView residual, TensorView delta, TensorView weight, float eps) {
  check_bf16(out, "norm"), check_bf16(residual, "residual"), check_bf16(delta, "delta");
  check(residual.rows == delta.rows && residual.cols == delta.cols && out.rows == delta.rows && out.cols == delta.cols &&
            weight.cols == out.cols && weight.dtype == DType::f32 && out.cols % 8 == 0,
        "add_rms_norm of ", delta.rows, " x ", delta.cols, " into ", out.rows, " x ", out.cols);
  check_cuda(kernels::add_rms_norm(bf16(out), stride_of(out), bf16(residual), stride_of(residual), bf16(delta),
                                   stride_of(delta), weight.row<float>(0), count(out.rows), count(out.cols), eps, stream_),
             "add_rms_norm");
}

void CudaOps::linear(TensorView out, TensorView x, const LinearWeight& weight) {
  check_bf16(x, "linear's input");
  check(x.cols == weight.k && out.rows == x.rows && out.cols == weight.n_out, "linear ", x.rows, " x ", x.cols, " -> ",
        out.rows, " x ", out.cols, " by a weight of ", weight.n_out, " x ", weight.k);
  gemm_.run(out, x, weight);
  if (weight.bias.bytes() == 0) return;
  const auto* bias = reinterpret_cast<const float*>(weight.bias.data());
  check_cuda(out.dtype == DType::f32
                 ? kernels::add_bias(out.row<float>(0), stride_of(out), bias, count(out.rows), count(out.cols), stream_)
                 : kernels::add_bias(bf16(out), stride_of(out), bias, count(out.rows), count(out.cols), stream_),
             "adding a bias");
}

void CudaOps::rope_store_kv(TensorView qkv, TensorView q_norm, TensorView k_norm, float eps, TensorView rope, HeadShape heads,
                            KvPages kv, const DeviceBatch& batch) {
  check_bf16(qkv, "qkv");
  check(qkv.rows == batch.n_rows && qkv.cols == heads.qkv_cols() && rope.cols == heads.head_dim && rope.dtype == DType::f32 &&
            kernels::attention_supports(count(heads.head_dim)),
        "qkv ", qkv.rows, " x ", qkv.cols, ", expected ", batch.n_rows, " x ", heads.qkv_cols(), "; head_dim ", heads.head_dim,
        ", expected 16, 32, 64 or 128");
  check_cuda(kernels::rope_store_kv({.qkv = bf16(qkv),
                                     .qkv_stride = stride_of(qkv),
                                     .q_norm = q_norm.data ? q_norm.row<float>(0) : nullptr,
                                     .k_norm = k_norm.data ? k_norm.row<float>(0) : nullptr,
                                     .eps = eps,
                                     .rope = rope.row<float>(0),
                                     .n_tokens = count(qkv.rows),
                                     .n_heads = count(heads.n_heads),
                                     .n_kv_heads = count(heads.n_kv_heads),
                                     .head_dim = count(heads.head_dim),
                                     .pages = reinterpret_cast<__nv_bfloat16*>(kv.data),
                                     .positions = batch.positions,
                                     .token_pages = token_pages_},
                                    stream_),
             "rope and KV");
}

void CudaOps::attention(TensorView out, TensorView qkv, HeadShape heads, KvPages kv, float scale, int32_t window,
                        const DeviceBatch& batch) {
  check_bf16(out, "attention"), check_bf16(qkv, "qkv");
  check(out.rows == qkv.rows && out.cols == heads.n_heads * heads.head_dim && heads.n_heads % heads.n_kv_heads == 0,
        "attention of ", qkv.rows, " rows into ", out.rows, " x ", out.cols);
  const AttentionWork& work = attention_work(heads, batch);
  const kernels::Attention args{.out = bf16(out),
                                .out_stride = stride_of(out),
                                .qkv = bf16(qkv),
                                .qkv_stride = stride_of(qkv),
                                .n_heads = count(heads.n_heads),
                                .n_kv_heads = count(heads.n_kv_heads),
                                .head_dim = count(heads.head_dim),
                                .pages = reinterpret_cast<const __nv_bfloat16*>(kv.data),
                                .scale = scale,
                                .window = window,
                                .q_offsets = batch.q_offsets,
                                .kv_lengths = batch.kv_lengths,
                                .page_offsets = batch.page_offsets,
                                .page_ids = batch.pages,
                                .each = work.each,
                                .n_each = work.n_each,
                                .few = work.few,
                                .n_few = work.n_few,
                                .few_rows = work.few_rows,
                                .tiles = work.tiles,
                                .n_tiles = work.n_tiles};
  // Few long sequences, or the tiles of a short prompt, don't fill the GPU: they run beside the rest.
  const bool apart[2] = {work.n_tiles > 0 && work.n_few + work.n_each > 0, work.n_few > 0 && work.n_each > 0};
  if (apart[0] || apart[1]) forked_.record(stream_);
  for (int i = 0; i < 2; ++i)
    if (apart[i]) forked_.hold(side_[i]);
  check_cuda(kernels::attend_tiles(args, apart[0] ? side_[0] : stream_), "attention of prompts");
  check_cuda(kernels::attend_few(args, apart[1] ? side_[1] : stream_), "attention of long sequences");
  check_cuda(kernels::attend_each(args, stream_), "attention of short sequences");
  for (int i = 0; i < 2; ++i) {
    if (!apart[i]) continue;
    joined_[i].record(side_[i]);
    joined_[i].hold(stream_);
  }
}

void CudaOps::silu_mul(TensorView out, TensorView gate_up) {
  check_bf16(out, "silu_mul"), check_bf16(gate_up, "gate_up");
  check(out.rows == gate_up.rows && 2 * out.cols == gate_up.cols, "silu_mul of ", gate_up.rows, " x ", gate_up.cols, " into ",
        out.rows, " x ", out.cols);
  check_cuda(kernels::silu_mul(bf16(out), stride_of(out), bf16(gate_up), stride_of(gate_up), count(out.rows), count(out.cols),
                               stream_),
             "silu_mul");
}

void CudaOps::gather_rows(TensorView out, TensorView x, const int32_t* rows) {
  check_bf16(out, "gathering"), check_bf16(x, "gathering");
  check(out.cols == x.cols, "gathering rows of ", x.cols, " into ", out.cols);
  check_cuda(
      kernels::gather_rows(bf16(out), stride_of(out), bf16(x), stride_of(x), rows, count(out.rows), count(out.cols), stream_),
      "gathering rows");
}

}  // namespace lockstep
