// Rotation, the KV pages and attention on the CPU.
#include <algorithm>

#include "base/error.h"
#include "ops/cpu/cpu_ops.h"

namespace lockstep {
namespace {

constexpr int64_t kMaxHeadDim = 4096;

void check_heads(HeadShape h) {
  check(h.n_kv_heads >= 1 && h.n_heads >= 1 && h.n_heads % h.n_kv_heads == 0 && h.head_dim >= 2 && h.head_dim % 2 == 0 &&
            h.head_dim <= kMaxHeadDim,
        h.n_heads, " heads, ", h.n_kv_heads, " kv heads, head_dim ", h.head_dim);
}

}  // namespace

size_t CpuOps::kv_page_bytes(DType dtype, int64_t n_kv_heads, int64_t head_dim) const {
  check(n_kv_heads >= 1 && n_kv_heads < 65536 && head_dim >= 1 && head_dim <= kMaxHeadDim, n_kv_heads, " kv heads, head_dim ",
        head_dim);
  return static_cast<size_t>(n_kv_heads * kv_head_elements(head_dim)) * size_of(dtype);
}

void CpuOps::check_pages(const KvPages& kv, HeadShape heads, const DeviceBatch& batch) const {
  check_heads(heads);
  check(kv.n_kv_heads == heads.n_kv_heads && kv.head_dim == heads.head_dim, "pages of ", kv.n_kv_heads, " kv heads x ",
        kv.head_dim, ", expected ", heads.n_kv_heads, " x ", heads.head_dim);
  check(last_page_ < kv.n_pages, "page ", last_page_, " of ", kv.n_pages);
  check(static_cast<int64_t>(sequence_of_.size()) == batch.host->n_tokens(), "a batch that was not uploaded last");
}

void CpuOps::rope_store_kv(TensorView qkv, TensorView q_norm, TensorView k_norm, float eps, TensorView rope, HeadShape heads,
                           KvPages kv, const DeviceBatch& batch) {
  check_pages(kv, heads, batch);
  const int64_t n_tokens = batch.host->n_tokens(), head_dim = heads.head_dim;
  check(qkv.rows == n_tokens && qkv.cols == heads.qkv_cols(), "qkv ", qkv.rows, " x ", qkv.cols, ", expected ", n_tokens, " x ",
        heads.qkv_cols());
  check(rope.dtype == DType::f32 && rope.cols == head_dim, "rope table of ", rope.cols, " columns, expected f32 ", head_dim);
  for (const TensorView& norm : {q_norm, k_norm}) {
    check(!norm.data || (norm.dtype == DType::f32 && norm.cols == head_dim), "head norm of ", norm.cols, ", expected f32 ",
          head_dim);
  }
  for (int64_t s = 0; s < batch.host->n_seqs(); ++s) {
    check(batch.kv_lengths[s] <= rope.rows, "position ", batch.kv_lengths[s] - 1, " beyond a rope table of ", rope.rows);
  }
  const auto page_bytes = static_cast<int64_t>(kv_page_bytes(kv.dtype, kv.n_kv_heads, kv.head_dim));
  pool_.parallel_for(n_tokens, std::max<int64_t>(1, 8192 / qkv.cols), [&](int64_t begin, int64_t end, int worker) {
    auto& scratch = scratch_[worker].a;
    scratch.resize(std::max(scratch.size(), static_cast<size_t>(head_dim)));
    for (int64_t t = begin; t < end; ++t) {
      const int32_t position = batch.positions[t];
      const PageId page = batch.pages[batch.page_offsets[sequence_of_[t]] + position / kPageSize];
      kernels_.rope_row({.qkv = qkv.data + t * qkv.row_stride * static_cast<int64_t>(size_of(qkv.dtype)),
                         .bf16 = qkv.dtype == DType::bf16,
                         .q_norm = q_norm.row<float>(0),
                         .k_norm = k_norm.row<float>(0),
                         .eps = eps,
                         .rope = rope.row<float>(position),
                         .n_heads = heads.n_heads,
                         .n_kv_heads = heads.n_kv_heads,
                         .head_dim = head_dim,
                         .page = kv.data + page * page_bytes,
                         .kv_bf16 = kv.dtype == DType::bf16,
                         .lane = position % kPageSize,
                         .scratch = scratch.data()});
    }
  });
}

void CpuOps::attention(TensorView out, TensorView qkv, HeadShape heads, KvPages kv, float scale, int32_t window,
                       const DeviceBatch& batch) {
  check_pages(kv, heads, batch);
  const int64_t n_tokens = batch.host->n_tokens(), head_dim = heads.head_dim, group = heads.n_heads / heads.n_kv_heads;
  check(qkv.rows == n_tokens && qkv.cols >= heads.n_heads * head_dim, "qkv ", qkv.rows, " x ", qkv.cols);
  check(out.rows == n_tokens && out.cols == heads.n_heads * head_dim && out.dtype == qkv.dtype, "attention into ", out.rows,
        " x ", out.cols, ", expected ", n_tokens, " x ", heads.n_heads * head_dim);
  check(window >= 0, "window ", window);
  const auto page_bytes = static_cast<int64_t>(kv_page_bytes(kv.dtype, kv.n_kv_heads, kv.head_dim));

  // A task: some queries of one sequence by some heads of one kv group, as many rows as a register tile takes.
  const int64_t tile_heads = std::min<int64_t>(group, kernels_.attention_rows);
  const int64_t tile_queries = std::max<int64_t>(1, kernels_.attention_rows / group);
  struct Task {
    int32_t sequence, token, n_queries;
  };
  std::vector<Task> tasks;
  int64_t longest = 0;
  for (int32_t s = 0; s < batch.host->n_seqs(); ++s) {
    longest = std::max<int64_t>(longest, batch.kv_lengths[s]);
    for (int64_t t = batch.q_offsets[s]; t < batch.q_offsets[s + 1]; t += tile_queries) {
      tasks.push_back({s, static_cast<int32_t>(t), static_cast<int32_t>(std::min(tile_queries, batch.q_offsets[s + 1] - t))});
    }
  }
  const int64_t head_tiles = (group + tile_heads - 1) / tile_heads, tiles_a_task = heads.n_kv_heads * head_tiles;
  const int64_t n_tasks = static_cast<int64_t>(tasks.size()) * tiles_a_task;
  const int64_t scores_stride = (longest + kPageSize - 1) / kPageSize * kPageSize;

  // Neighbouring tasks are queries of one kv head, so that its pages stay in cache.
  pool_.parallel_for(
      n_tasks, std::clamp<int64_t>(n_tasks / (8 * pool_.n_threads()), 1, 16), [&](int64_t begin, int64_t end, int worker) {
        Scratch& scratch = scratch_[worker];
        scratch.a.resize(std::max(scratch.a.size(), static_cast<size_t>(kernels_.attention_rows * head_dim)));
        scratch.b.resize(std::max(scratch.b.size(), static_cast<size_t>(kernels_.attention_rows * scores_stride)));
        scratch.c.resize(std::max(scratch.c.size(), static_cast<size_t>(kernels_.attention_rows * value_stride(head_dim))));
        for (int64_t i = begin; i < end; ++i) {
          const int64_t n = static_cast<int64_t>(tasks.size());
          const Task& task = tasks[i % n];
          const int64_t kv_head = i / n / head_tiles;
          const int64_t first_head = kv_head * group + i / n % head_tiles * tile_heads;
          const int64_t n_heads = std::min(tile_heads, (kv_head + 1) * group - first_head);
          int32_t first[kMaxTile], last[kMaxTile];
          void* out_rows[kMaxTile];
          int n_rows = 0;
          const int n_all = static_cast<int>(task.n_queries * n_heads);
          for (int64_t t = task.token; t < task.token + task.n_queries; ++t) {
            for (int64_t h = first_head; h < first_head + n_heads; ++h, ++n_rows) {
              last[n_rows] = batch.positions[t];
              first[n_rows] = window == 0 ? 0 : std::max(0, last[n_rows] - window + 1);
              out_rows[n_rows] = out.data + (t * out.row_stride + h * head_dim) * static_cast<int64_t>(size_of(out.dtype));
              const CpuMatrix q{qkv.data + (t * qkv.row_stride + h * head_dim) * static_cast<int64_t>(size_of(qkv.dtype)), 0,
                                qkv.dtype == DType::bf16};
              kernels_.convert(scratch.c.data(), false, q.data, q.bf16, head_dim);
              for (int64_t d = 0; d < head_dim; ++d) scratch.a[d * n_all + n_rows] = scratch.c[d];
            }
          }
          kernels_.attention_tile({.n_rows = n_rows,
                                   .head_dim = head_dim,
                                   .q = scratch.a.data(),
                                   .first = first,
                                   .last = last,
                                   .scale = scale,
                                   .kv = reinterpret_cast<const char*>(kv.data) +
                                         kv_head * kv_head_elements(head_dim) * static_cast<int64_t>(size_of(kv.dtype)),
                                   .page_bytes = page_bytes,
                                   .pages = batch.pages + batch.page_offsets[task.sequence],
                                   .kv_bf16 = kv.dtype == DType::bf16,
                                   .scores = scratch.b.data(),
                                   .scores_stride = scores_stride,
                                   .sums = scratch.c.data(),
                                   .out = out_rows,
                                   .out_bf16 = out.dtype == DType::bf16});
        }
      });
}

}  // namespace lockstep
