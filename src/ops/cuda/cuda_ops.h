// Ops on one GPU, in bf16: checks what callers give, moves a step's arrays over, and launches kernels/ and cuBLASLt on one
// stream. Nothing waits for the GPU but `collect`, `upload`, `download`. Made by make_cuda_ops (ops.h); this header is for the
// folder's own files.
//
// A step in which every sequence has one new token is recorded as a CUDA graph, one for each of a few numbers of rows: its
// arrays lie in memory of their own, at places that don't depend on the number of sequences, and idle rows follow the last one.
//
// Weights are [n_out, k], row-major; pages as kernels/rope_kv.h says. A row's bits depend on its values, position and KV alone:
// products by cuda_gemm.h, attention by kernels/attention.h, the rest row by row.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/attention.h"
#include "kernels/sample.h"
#include "ops/cuda/cuda_gemm.h"
#include "ops/cuda/cuda_memory.h"
#include "ops/cuda/cuda_stream.h"
#include "ops/ops.h"

namespace lockstep {

class CudaOps final : public Ops {
 public:
  explicit CudaOps(const CudaOptions& options);
  ~CudaOps() override;

  std::string kernel_class() const override { return kernel_class_; }
  StreamRef stream() const override { return {static_cast<cudaStream_t>(stream_)}; }

  Buffer allocate(size_t bytes) override { return allocate_on_gpu(bytes); }
  Buffer allocate_host(size_t bytes) override;
  void upload(TensorView to, const float* from) override;
  void download(float* to, TensorView from) override;
  void begin_loading(std::vector<LinearShape> shapes) override { gemm_.begin_trials(std::move(shapes)); }
  void end_loading() override { gemm_.end_trials(); }
  LinearWeight load_linear(int64_t n_out, int64_t k, DType dtype, const RowReader& read_rows) override;
  size_t kv_page_bytes(DType dtype, int64_t n_kv_heads, int64_t head_dim) const override;
  void copy_pages(PageWay way, const KvPool& pool, std::span<const HostPage> pages) override;

  DeviceBatch upload_batch(const StepBatch& batch) override;
  void replayable(const DeviceBatch& batch, const std::function<void()>& launches) override;
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
  bool is_done(int64_t step) override {
    return pending_.empty() || pending_.front().step != step || pending_.front().done->is_over();
  }

 private:
  struct AttentionWork {  // of the batch, for these heads
    HeadShape heads;
    const int32_t *each = nullptr, *few = nullptr;
    const kernels::QueryTile* tiles = nullptr;
    int n_each = 0, n_few = 0, few_rows = 0, n_tiles = 0;
  };
  struct Graph {
    Graph() = default;
    ~Graph() {
      if (exec != nullptr) cudaGraphExecDestroy(exec);
    }
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;
    bool seen = false;  // launched one by one before: products have their algorithms
    cudaGraphExec_t exec = nullptr;
  };
  using GraphKey = std::tuple<int64_t, bool, bool>;  // rows, and which kernels of attention run

  struct Row {  // of an outcome
    RequestId request;
    int32_t position;
  };
  struct Part {  // of an outcome: one call of sample or score
    std::vector<Row> rows;
    bool scored;
    size_t drawn_at, top_at;  // bytes into Pending::memory
  };
  struct Pending {
    int64_t step = 0;
    Buffer memory;  // pinned
    size_t used = 0;
    std::vector<Part> parts;
    std::unique_ptr<Event> begun, done;
  };
  DeviceBatch upload_decodes(const StepBatch& batch);
  bool is_recorded(const StepBatch& batch) const;
  const AttentionWork& attention_work(HeadShape heads, const DeviceBatch& batch);
  const float* adjusted_logits(TensorView logits, const DeviceBatch& batch, std::vector<int32_t>& row_of);
  void begin_adjustments(const DeviceBatch& batch, int64_t vocab);
  Pending& pending_of(const DeviceBatch& batch);
  void send_rules(const void* rules, size_t bytes, size_t n_rows);
  void fetch(Pending& pending, Part part, bool with_top);
  void check_bf16(const TensorView& view, const char* name) const;

  int device_;
  Stream stream_, side_[2];  // the side ones: parts of one attention, between forked_ and joined_
  Event forked_, joined_[2];
  std::string kernel_class_;
  CudaGemm gemm_;
  int64_t n_slots_;
  int64_t most_recorded_;  // rows; 0: no graphs
  Staging staging_, work_staging_, sample_staging_;
  Buffer batch_memory_, work_memory_, sample_memory_;  // device
  Buffer rules_, slots_, drawn_, top_;                 // device
  Buffer counts_, adjusted_, new_tokens_;              // device; taken when a request first wants them
  Buffer load_host_[2], load_device_[2];
  Event load_events_[2];
  AttentionWork work_;
  HeadShape heads_;  // of the model, from its first attention on
  Buffer decode_memory_;
  bool recorded_ = false;  // the batch uploaded last lies in decode_memory_
  std::map<GraphKey, Graph> graphs_;
  const int32_t* token_pages_ = nullptr;
  std::vector<LogitAdjustments> wishes_;  // [n_slots]  the counts that go with them are on the GPU
  std::deque<Pending> pending_;
  std::vector<Pending> spare_;    // with memory and events, to be used again
  std::unique_ptr<Event> begun_;  // of the batch uploaded last, until something of it is pending
  int64_t collected_ = -1;
};

}  // namespace lockstep
