// Projections on the CPU: packing of weights at load, and the division of a product into tasks of some row tiles by one panel.
#include <algorithm>

#include "base/error.h"
#include "ops/cpu/cpu_ops.h"

namespace lockstep {
namespace {

constexpr int64_t kRowTiles = 16;       // row tiles a task: 192 rows of 576 f32 are 442 KB, they stay in L2 (1 MB) over panels
constexpr int64_t kBlockK = 768;        // of a panel at once: 96 KB of f32
constexpr int64_t kExpandTiles = 4;     // from so many row tiles on, a bf16 block is expanded to f32 once for all of them
constexpr int64_t kSerialPack = 32768;  // elements of x up to which the caller packs alone

}  // namespace

LinearWeight CpuOps::load_linear(int64_t n_out, int64_t k, DType dtype, const RowReader& read_rows) {
  check(n_out >= 1 && k >= 1 && n_out < int64_t{1} << 29 && k < int64_t{1} << 29, "weight of ", n_out, " x ", k);
  const int64_t n_panels = (n_out + kPanel - 1) / kPanel;
  const size_t bytes = static_cast<size_t>(n_panels * kPanel * k) * size_of(dtype);
  LinearWeight weight{.n_out = n_out, .k = k, .dtype = dtype, .data = allocate(bytes), .bias = {}};

  const int64_t panels_a_read = std::max<int64_t>(1, (int64_t{4} << 20) / (k * kPanel));
  std::vector<float> rows(static_cast<size_t>(std::min(panels_a_read * kPanel, n_out) * k));
  for (int64_t first = 0; first < n_panels; first += panels_a_read) {
    const int64_t n = std::min(panels_a_read, n_panels - first);
    const Range range{first * kPanel, std::min((first + n) * kPanel, n_out)};
    read_rows(range, rows.data());
    pool_.parallel_for(n, 1, [&](int64_t begin, int64_t end, int worker) {
      auto& panel = scratch_[worker].a;
      panel.resize(static_cast<size_t>(kPanel * k));
      for (int64_t p = begin; p < end; ++p) {
        const int64_t n_columns = std::min<int64_t>(kPanel, range.size() - p * kPanel);
        std::fill(panel.begin(), panel.end(), 0.0f);
        for (int64_t column = 0; column < n_columns; ++column) {
          const float* row = rows.data() + (p * kPanel + column) * k;
          for (int64_t i = 0; i < k; ++i) panel[i * kPanel + column] = row[i];
        }
        std::byte* to = weight.data.data() + (first + p) * kPanel * k * static_cast<int64_t>(size_of(dtype));
        kernels_.convert(to, dtype == DType::bf16, panel.data(), false, kPanel * k);
      }
    });
  }
  return weight;
}

void CpuOps::linear(TensorView out, TensorView x, const LinearWeight& weight) {
  const int64_t n_rows = x.rows, k = weight.k, n_out = weight.n_out;
  check(x.cols == k && out.rows == n_rows && out.cols == n_out, "linear ", x.rows, " x ", x.cols, " -> ", out.rows, " x ",
        out.cols, " by a weight of ", n_out, " x ", k);
  check(weight.bias.bytes() == 0 || weight.bias.bytes() >= static_cast<size_t>(n_out) * 4, "bias of ", weight.bias.bytes(),
        " bytes, expected f32 ", n_out);
  const float* bias = weight.bias.bytes() == 0 ? nullptr : reinterpret_cast<const float*>(weight.bias.data());
  const bool bf16 = weight.dtype == DType::bf16;
  const int64_t tile = kernels_.gemm_rows, n_tiles = (n_rows + tile - 1) / tile, n_panels = (n_out + kPanel - 1) / kPanel;

  if (packed_.size() < static_cast<size_t>(n_rows * k)) packed_.resize(static_cast<size_t>(n_rows * k));
  const auto rows_of = [&](int64_t t) { return static_cast<int>(std::min(tile, n_rows - t * tile)); };
  const auto row_view = [&](TensorView v, int64_t row) {
    return CpuMatrix{v.data + row * v.row_stride * static_cast<int64_t>(size_of(v.dtype)), v.row_stride,
                     v.dtype == DType::bf16};
  };
  const auto pack = [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t)
      kernels_.pack_rows(packed_.data() + t * tile * k, row_view(x, t * tile), rows_of(t), k);
  };
  n_rows* k <= kSerialPack ? pack(0, n_tiles, 0) : pool_.parallel_for(n_tiles, 1, pack);

  int64_t tiles_a_task = kRowTiles;
  while (tiles_a_task > 1 && (n_tiles + tiles_a_task - 1) / tiles_a_task * n_panels < 4 * pool_.n_threads()) tiles_a_task /= 2;
  const int64_t n_tasks = (n_tiles + tiles_a_task - 1) / tiles_a_task * n_panels;
  const int64_t n_blocks = (k + kBlockK - 1) / kBlockK, block_k = (k + n_blocks - 1) / n_blocks;

  pool_.parallel_for(
      n_tasks, std::clamp<int64_t>(n_tasks / (8 * pool_.n_threads()), 1, 8), [&](int64_t task, int64_t end, int worker) {
        Scratch& scratch = scratch_[worker];
        for (; task < end; ++task) {
          const int64_t panel = task % n_panels, first = task / n_panels * tiles_a_task;
          const int64_t last = std::min(first + tiles_a_task, n_tiles);
          const bool expand = bf16 && last - first >= kExpandTiles;
          scratch.a.assign(static_cast<size_t>((last - first) * tile * kPanel), 0.0f);
          if (expand) scratch.b.resize(static_cast<size_t>(block_k * kPanel));
          for (int64_t k0 = 0; k0 < k; k0 += block_k) {
            const int64_t n_k = std::min(block_k, k - k0);
            const void* w = weight.data.data() + (panel * k + k0) * kPanel * static_cast<int64_t>(size_of(weight.dtype));
            if (expand) {
              kernels_.convert(scratch.b.data(), false, w, true, n_k * kPanel);
              w = scratch.b.data();
            }
            for (int64_t t = first; t < last; ++t) {
              const float* rows = packed_.data() + t * tile * k + k0 * rows_of(t);
              kernels_.gemm_tile(scratch.a.data() + (t - first) * tile * kPanel, rows, rows_of(t), w, bf16 && !expand, n_k);
            }
          }
          const int64_t column = panel * kPanel;
          const int n_columns = static_cast<int>(std::min<int64_t>(kPanel, n_out - column));
          const TensorView slab = out.columns({column, column + n_columns});
          kernels_.finish_tile(row_view(slab, first * tile), scratch.a.data(), bias ? bias + column : nullptr,
                               static_cast<int>(std::min(last * tile, n_rows) - first * tile), n_columns);
        }
      });
}

}  // namespace lockstep
