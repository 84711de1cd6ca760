// The CPU kernels as a table of functions: raw pointers, one thread, no checks. One source (kernels_*.inc) is compiled for
// three instruction sets; cpu_ops.cpp picks a table at start and divides the work. Same bits from each.
// Not for: shapes that callers give (cpu_ops.cpp checks them), threads (thread_pool.h).
//   const CpuKernels& k = cpu_kernels("avx512"); k.rms_norm(out, x, weight, n_rows, n_cols, eps);
#pragma once

#include <cstdint>

namespace lockstep {

inline constexpr int kPanel = 32;    // output columns of a weight that lie together, [k][kPanel]
inline constexpr int kKvTile = 16;   // positions of a KV page; kPageSize, checked in cpu_ops.cpp
inline constexpr int kMaxTile = 16;  // >= gemm_rows and attention_rows of every table
inline constexpr int kChunk = 256;   // vocabulary entries whose sum is made apart

// A matrix of f32 or bf16 as the kernels see it; stride in elements.
struct CpuMatrix {
  void* data;
  int64_t stride;
  bool bf16;
};

// Where one kv head's tile lies in a page: keys [head_dim][16], then values [16][value_stride], in the cache's dtype.
constexpr int64_t value_stride(int64_t head_dim) { return (head_dim + 15) / 16 * 16; }
constexpr int64_t kv_head_elements(int64_t head_dim) { return kKvTile * (head_dim + value_stride(head_dim)); }

struct RopeRow {
  void* qkv;            // [(n_heads + 2 n_kv_heads) head_dim], changed in its q part
  bool bf16;            // of qkv
  const float* q_norm;  // [head_dim], or null
  const float* k_norm;
  float eps;
  const float* rope;  // [head_dim] cosines, sines
  int64_t n_heads, n_kv_heads, head_dim;
  void* page;  // of this token
  bool kv_bf16;
  int lane;        // place in the page
  float* scratch;  // [head_dim]
};

// Query rows that read the same kv head of one sequence, in ascending positions.
struct AttentionTile {
  int n_rows;  // 1 .. attention_rows
  int64_t head_dim;
  const float* q;        // [head_dim][n_rows]
  const int32_t* first;  // [n_rows] first position seen, ascending
  const int32_t* last;   // [n_rows] last position seen, ascending
  float scale;
  const char* kv;  // pages of one layer, at this kv head
  int64_t page_bytes;
  const int32_t* pages;  // of the sequence
  bool kv_bf16;
  float* scores;          // [n_rows][scores_stride] scratch
  int64_t scores_stride;  // multiple of 16, > last position
  float* sums;            // [n_rows][value_stride(head_dim)] scratch
  void* const* out;       // [n_rows] -> [head_dim]
  bool out_bf16;
};

struct CpuKernels {
  const char* name;
  int gemm_rows;       // rows of x in one register tile
  int attention_rows;  // query rows in one

  // to[i] = from[i], n elements, rounded where bf16.
  void (*convert)(void* to, bool to_bf16, const void* from, bool from_bf16, int64_t n);

  // Rows of x [n_rows, k] interleaved: out [k][n_rows] f32.
  void (*pack_rows)(float* out, CpuMatrix x, int n_rows, int64_t k);
  // sums [n_rows][kPanel] += x w, each sum's chain over k in order; x [k][n_rows], panel [k][kPanel] f32 or bf16.
  void (*gemm_tile)(float* sums, const float* x, int n_rows, const void* panel, bool panel_bf16, int64_t k);
  // out [n_rows, n_cols] = sums + bias (f32 [n_cols] or null).
  void (*finish_tile)(CpuMatrix out, const float* sums, const float* bias, int n_rows, int n_cols);

  void (*add)(CpuMatrix residual, CpuMatrix delta, int64_t n_rows, int64_t n_cols);
  void (*rms_norm)(CpuMatrix out, CpuMatrix x, const float* weight, int64_t n_rows, int64_t n_cols, float eps);
  void (*silu_mul)(CpuMatrix out, CpuMatrix gate_up, int64_t n_rows, int64_t n_cols);  // gate_up [n_rows, 2 n_cols]
  void (*rope_row)(const RopeRow& row);
  void (*attention_tile)(const AttentionTile& tile);

  // ---- sampling: x [n] f32 ----
  // The largest value; false if there is a NaN, a +infinity, or nothing above -infinity.
  bool (*find_max)(const float* x, int64_t n, float* max);
  // The first index >= begin with x[i] >= bound; n if there is none.
  int64_t (*find_not_less)(const float* x, int64_t begin, int64_t n, float bound);
  // Sum of e^(x - max): each kChunk entries in 16 lanes and a tree in f32, the chunks in order in double.
  double (*sum_exp)(const float* x, int64_t n, float max);
  // y = (x - max) / temperature, p = e^y; returns the sum of p, as sum_exp.
  double (*soften)(float* y, float* p, const float* x, int64_t n, float max, float temperature);
  // The token with the largest y[i] + g(token), ties to the lower id; token = ids[i], or i where ids is null.
  int32_t (*gumbel_argmax)(const float* y, const int32_t* ids, int64_t n, uint64_t key, uint32_t position);
};

// The table of "generic", "avx2" or "avx512"; "" gives the best of this machine. Error (usage) for a name that is unknown or
// that this machine lacks.
const CpuKernels& cpu_kernels(const char* instruction_set);

namespace generic {
extern const CpuKernels kKernels;
}
namespace avx2 {
extern const CpuKernels kKernels;
}
namespace avx512 {
extern const CpuKernels kKernels;
}

}  // namespace lockstep
