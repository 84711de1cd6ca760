// One attention layer over several sequences, and the ways to run it: in one pass, in chunks, over pages in any order. For the
// tests of attention.
//   AttentionLayer layer({4, 2, 16}, {33, 5}, dtype);  layer.run(*ops, dtype, layer.chunks({7}), 1)
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "tests/ops/ops_testing.h"

namespace lockstep {

// One layer's cache and the batches of several sequences over it, pages dealt in shuffled order.
struct Sequences {
  HeadShape heads;
  std::vector<int32_t> lengths;  // of each sequence, in the end
  std::vector<std::vector<PageId>> pages;
  Buffer cache;
  KvPages kv;

  Sequences(Ops& ops, DType dtype, HeadShape heads, std::vector<int32_t> lengths, uint64_t seed)
      : heads(heads), lengths(std::move(lengths)) {
    std::vector<PageId> order;
    for (const int32_t n : this->lengths) order.resize(order.size() + static_cast<size_t>(n + kPageSize - 1) / kPageSize);
    std::iota(order.begin(), order.end(), 0);
    for (size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[philox4x32(seed, {static_cast<uint32_t>(i), 0, 0, 0})[0] % i]);
    }
    size_t next = 0;
    for (const int32_t n : this->lengths) {
      const auto n_pages = static_cast<size_t>(n + kPageSize - 1) / kPageSize;
      pages.emplace_back(order.begin() + static_cast<std::ptrdiff_t>(next),
                         order.begin() + static_cast<std::ptrdiff_t>(next + n_pages));
      next += n_pages;
    }
    const size_t bytes = ops.kv_page_bytes(dtype, heads.n_kv_heads, heads.head_dim), elements = bytes / size_of(dtype);
    cache = ops.allocate(bytes * order.size());
    const std::vector<float> rubbish(elements * order.size(), std::nanf(""));  // what was not written must not be used
    ops.upload(cache.matrix(dtype, static_cast<int64_t>(order.size()), static_cast<int64_t>(elements)), rubbish.data());
    kv = {cache.data(), dtype, static_cast<int64_t>(order.size()), heads.n_kv_heads, heads.head_dim};
  }

  // New tokens [begin, end) of each sequence.
  StepBatch batch(const std::vector<Range>& ranges) const {
    StepBatch b;
    b.q_offsets = b.page_offsets = {0};
    for (size_t s = 0; s < ranges.size(); ++s) {
      if (ranges[s].size() == 0) continue;
      for (int64_t p = ranges[s].begin; p < ranges[s].end; ++p) b.positions.push_back(static_cast<int32_t>(p));
      b.kv_lengths.push_back(static_cast<int32_t>(ranges[s].end));
      b.q_offsets.push_back(static_cast<int32_t>(b.positions.size()));
      const auto n = (ranges[s].end + kPageSize - 1) / kPageSize;
      b.pages.insert(b.pages.end(), pages[s].begin(), pages[s].begin() + n);
      b.page_offsets.push_back(static_cast<int32_t>(b.pages.size()));
    }
    b.token_ids.assign(b.positions.size(), 0);
    return b;
  }
};

struct AttentionLayer {  // inputs of one attention layer over all sequences, and how to run it in steps
  HeadShape heads;
  std::vector<int32_t> lengths;
  std::vector<float> qkv;   // [sum of lengths, qkv_cols], sequence by sequence
  std::vector<float> rope;  // [max length, head_dim]
  std::vector<float> q_norm, k_norm;
  float scale = 0.3f;
  int32_t window = 0;

  AttentionLayer(HeadShape heads, std::vector<int32_t> lengths, DType dtype) : heads(heads), lengths(std::move(lengths)) {
    const int64_t n = std::accumulate(this->lengths.begin(), this->lengths.end(), int64_t{0});
    qkv = random_values(n * heads.qkv_cols(), 11, dtype, 2.0f);
    const int64_t half = heads.head_dim / 2;
    for (int32_t p = 0; p < *std::max_element(this->lengths.begin(), this->lengths.end()); ++p) {
      for (int64_t i = 0; i < half; ++i) rope.push_back(static_cast<float>(std::cos(p / (1.0 + static_cast<double>(i)))));
      for (int64_t i = 0; i < half; ++i) rope.push_back(static_cast<float>(std::sin(p / (1.0 + static_cast<double>(i)))));
    }
  }
  AttentionLayer& with_norms() {
    q_norm = random_values(heads.head_dim, 21, DType::f32), k_norm = random_values(heads.head_dim, 22, DType::f32);
    return *this;
  }
  int64_t first_row(size_t s) const {
    return std::accumulate(lengths.begin(), lengths.begin() + static_cast<std::ptrdiff_t>(s), int64_t{0});
  }

  Matrix rope_table(Ops& ops) const {  // its rows lie without gaps
    return {ops, DType::f32, static_cast<int64_t>(rope.size()) / heads.head_dim, heads.head_dim, rope, 0};
  }

  // steps[i][s]: the new tokens of sequence s in step i. Returns out [sum of lengths, n_heads head_dim] by sequence.
  std::vector<float> run(Ops& ops, DType dtype, const std::vector<std::vector<Range>>& steps, uint64_t seed) const {
    Sequences sequences(ops, dtype, heads, lengths, seed);
    const int64_t cols = heads.n_heads * heads.head_dim, qkv_cols = heads.qkv_cols();
    std::vector<float> all(static_cast<size_t>(first_row(lengths.size()) * cols), -1e30f);
    const Matrix table = rope_table(ops), qn(ops, DType::f32, 1, heads.head_dim, q_norm),
                 kn(ops, DType::f32, 1, heads.head_dim, k_norm);
    for (const auto& ranges : steps) {
      const StepBatch batch = sequences.batch(ranges);
      const DeviceBatch device = ops.upload_batch(batch);
      std::vector<float> rows;
      for (size_t s = 0; s < ranges.size(); ++s) {
        const float* from = qkv.data() + (first_row(s) + ranges[s].begin) * qkv_cols;
        rows.insert(rows.end(), from, from + ranges[s].size() * qkv_cols);
      }
      const Matrix x(ops, dtype, batch.n_tokens(), qkv_cols, rows);
      const Matrix out(ops, dtype, batch.n_tokens(), cols);
      const bool norm = !q_norm.empty();
      ops.rope_store_kv(x.view, norm ? qn.view : TensorView{}, norm ? kn.view : TensorView{}, 1e-6f, table.view, heads,
                        sequences.kv, device);
      ops.attention(out.view, x.view, heads, sequences.kv, scale, window, device);
      EXPECT_TRUE(x.intact() && out.intact());
      const auto values = out.values();
      int64_t row = 0;
      for (size_t s = 0; s < ranges.size(); ++s) {
        std::copy(values.begin() + row * cols, values.begin() + (row + ranges[s].size()) * cols,
                  all.begin() + (first_row(s) + ranges[s].begin) * cols);
        row += ranges[s].size();
      }
    }
    return all;
  }
  std::vector<std::vector<Range>> one_pass() const {
    std::vector<Range> ranges;
    for (const int32_t n : lengths) ranges.push_back({0, n});
    return {ranges};
  }
  std::vector<std::vector<Range>> chunks(std::vector<int64_t> sizes) const {  // sizes are used in turn, all sequences at once
    std::vector<std::vector<Range>> steps;
    std::vector<int64_t> at(lengths.size(), 0);
    size_t turn = 0;
    for (bool more = true; more;) {
      more = false;
      std::vector<Range> ranges;
      for (size_t s = 0; s < lengths.size(); ++s) {
        const int64_t end = std::min<int64_t>(lengths[s], at[s] + sizes[turn++ % sizes.size()]);
        ranges.push_back({at[s], end});
        at[s] = end;
        more |= end < lengths[s];
      }
      steps.push_back(ranges);
    }
    return steps;
  }
};

}  // namespace lockstep
