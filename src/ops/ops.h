// The arithmetic of a decoder, one call a whole step's rows: the contract of ops/cpu and ops/cuda, and one of the program's two
// virtual interfaces. No communication in it (comm/), no model (model/): a layer is about a dozen of these calls.
//
// Bits: a row's result depends on that row's values, its position and its sequence's KV alone; never on the other rows, their
// number, the column range computed, the page numbers, or threads. Every implementation keeps that, and the tests compare
// bytes. Matrices are [rows, cols] with a row stride; rows are tokens unless said otherwise. Activations have the run's dtype
// (f32 or bf16: then results are rounded to bf16 once, at the end of the op), sums are f32. Shapes that don't fit throw Error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "records/completion.h"
#include "records/step_batch.h"
#include "tensor/tensor.h"

namespace lockstep {

// The weight of a projection, out = x W^T + bias, in the layout its Ops chose.
struct LinearWeight {
  int64_t n_out = 0, k = 0;  // W is [n_out, k]
  DType dtype = DType::f32;
  Buffer data;
  Buffer bias;  // f32 [n_out], or empty
};

// A projection that a model will ask for.
struct LinearShape {
  int64_t n_out = 0, k = 0;
  DType out = DType::f32;
  int64_t most_rows = 0;
};

// Gives rows [begin, end) of a weight as f32 [rows.size(), k]; called in ascending order, each row once.
using RowReader = std::function<void(Range rows, float* out)>;

// One layer's KV pages. Inside a page the order is its Ops' own.
struct KvPages {
  std::byte* data = nullptr;  // [n_pages, page_bytes]
  DType dtype = DType::f32;
  int64_t n_pages = 0;
  int64_t n_kv_heads = 0;  // of this rank
  int64_t head_dim = 0;
};

// The KV pages of all layers of a rank.
struct KvPool {
  std::byte* data = nullptr;  // [n_layers, n_pages, page_bytes]
  int64_t n_layers = 0, n_pages = 0;
  size_t page_bytes = 0;  // of one layer
};

// A page of the pool, all layers of it, and its place on the host.
struct HostPage {
  PageId page = 0;
  std::byte* data = nullptr;  // [n_layers, page_bytes], of `allocate_host`
};
enum class PageWay : uint8_t { to_host, from_host };

// A StepBatch where the kernels read it.
struct DeviceBatch {
  const StepBatch* host = nullptr;
  int64_t n_rows = 0;                   // of the step's matrices: its tokens, and after them idle rows if the device wants some
  const TokenId* token_ids = nullptr;   // [n_rows]
  const int32_t* positions = nullptr;   // [n_rows]
  const int32_t* q_offsets = nullptr;   // [n_seqs + 1]
  const int32_t* kv_lengths = nullptr;  // [n_seqs]
  const int32_t* page_offsets = nullptr;  // [n_seqs + 1]
  const PageId* pages = nullptr;          // [page_offsets[n_seqs]]
  const int32_t* sample_rows = nullptr;   // [n_samples]
  const int32_t* score_rows = nullptr;    // [n_scores]
};

struct HeadShape {
  int64_t n_heads = 0, n_kv_heads = 0, head_dim = 0;  // of this rank; n_heads a multiple of n_kv_heads
  int64_t qkv_cols() const { return (n_heads + 2 * n_kv_heads) * head_dim; }
};

class Ops {
 public:
  virtual ~Ops() = default;

  // The class of arithmetic: runs of one class give the same bits. "cpu-f32-fma", later "cuda-sm90-bf16", ...
  virtual std::string kernel_class() const = 0;

  // Where its work is put, in order; null where calls return when they are done.
  virtual StreamRef stream() const { return {}; }

  // ---- memory ----
  virtual Buffer allocate(size_t bytes) = 0;                  // 64-byte aligned at least; contents undefined
  virtual Buffer allocate_host(size_t bytes) = 0;             // on the host, where `copy_pages` reaches it; from any thread
  virtual void upload(TensorView to, const float* from) = 0;  // from [rows, cols] on the host, rounded to the view's dtype
  virtual void download(float* to, TensorView from) = 0;
  // Around the loading of a model's weights: between the two a device may try its algorithms for the products to come.
  virtual void begin_loading(std::vector<LinearShape>) {}
  virtual void end_loading() {}
  virtual LinearWeight load_linear(int64_t n_out, int64_t k, DType dtype, const RowReader& read_rows) = 0;
  virtual size_t kv_page_bytes(DType dtype, int64_t n_kv_heads, int64_t head_dim) const = 0;  // of one layer

  // Pages between the pool and the host, in the order of the stream; none is named twice.
  virtual void copy_pages(PageWay way, const KvPool& pool, std::span<const HostPage> pages) = 0;

  // ---- one step ----
  virtual DeviceBatch upload_batch(const StepBatch& batch) = 0;  // valid until the next call; `batch` must outlive it

  // Calls `launches`, which makes one sequence of the calls below on one set of memory for all batches of n_rows rows. A device
  // may record it once and replay the record when such a batch comes again.
  virtual void replayable(const DeviceBatch&, const std::function<void()>& launches) { launches(); }

  // out [n_rows, hidden]; table [vocab, hidden]. References take their token from the sample buffer.
  virtual void embed(TensorView out, TensorView table, const DeviceBatch& batch) = 0;

  // out = x / sqrt(mean(x^2) + eps) * weight; weight f32 [1, cols]. In bf16 the quotient is rounded before the product, as
  // Transformers does.
  virtual void rms_norm(TensorView out, TensorView x, TensorView weight, float eps) = 0;
  // residual += delta, rounded to the dtype.
  virtual void add(TensorView residual, TensorView delta) = 0;
  // add(residual, delta), then out = rms_norm(residual), with the same bits.
  virtual void add_rms_norm(TensorView out, TensorView residual, TensorView delta, TensorView weight, float eps) = 0;

  // out [rows, n_out] = x [rows, k] W^T + bias. out may be a column slab of a wider matrix, and f32 where x is bf16 (logits).
  virtual void linear(TensorView out, TensorView x, const LinearWeight& weight) = 0;

  // qkv [n_rows, (n_heads + 2 n_kv_heads) head_dim], q heads first, then k, then v. With norm weights (f32 [1, head_dim], or
  // null data: none) q and k heads are normalised first. Then rotated in halves (i, i + head_dim / 2) by `rope` f32
  // [n_positions, head_dim] (cosines, then sines, of head_dim / 2 frequencies); q in place, k and v into the pages.
  virtual void rope_store_kv(TensorView qkv, TensorView q_norm, TensorView k_norm, float eps, TensorView rope, HeadShape heads,
                             KvPages kv, const DeviceBatch& batch) = 0;

  // out [n_rows, n_heads head_dim] from the q part of qkv over the pages. A token at position i sees positions
  // max(0, i - window + 1) .. i of its sequence (window 0: all).
  virtual void attention(TensorView out, TensorView qkv, HeadShape heads, KvPages kv, float scale, int32_t window,
                         const DeviceBatch& batch) = 0;

  // out [n_tokens, ffn] = silu(gate) * up; gate_up [n_tokens, 2 ffn], gate first.
  virtual void silu_mul(TensorView out, TensorView gate_up) = 0;

  // out [n, cols] = the rows of x that `rows` names: [n], where the kernels read it (of DeviceBatch).
  virtual void gather_rows(TensorView out, TensorView x, const int32_t* rows) = 0;

  // ---- sampling ----
  // logits f32 [n_samples, vocab]. Takes in batch.adjustments; tokens go to the sample buffer by slot, their outcome waits for
  // `collect`. Log-probabilities are those of the raw logits, before any adjustment, temperature or filter.
  virtual void sample(TensorView logits, const DeviceBatch& batch) = 0;
  // logits f32 [scores.size(), vocab] for these of batch.scores; the outcome waits for `collect`.
  virtual void score(TensorView logits, const DeviceBatch& batch, Range scores) = 0;
  // Outcomes of `step`, in order of its rows; waits for the device. Steps are collected once each, in order.
  virtual StepOutcome collect(int64_t step) = 0;
  virtual bool is_done(int64_t) { return true; }  // whether collect of that step wouldn't wait
};

struct CpuOptions {
  int n_threads = 1;
  int n_slots = 256;            // of the sample buffer
  std::string instruction_set;  // "" the best this machine has; "avx512", "avx2", "generic": for tests, the bits are equal
};
std::unique_ptr<Ops> make_cpu_ops(const CpuOptions& options);

struct CudaOptions {
  int device = 0;
  int n_slots = 256;
  bool graphs = false;     // `replayable` records steps in which each sequence has one new token
  int64_t max_tokens = 0;  // of a step; for graphs
};
// In builds with LOCKSTEP_CUDA; Error (environment) without a GPU.
std::unique_ptr<Ops> make_cuda_ops(const CudaOptions& options);

}  // namespace lockstep
