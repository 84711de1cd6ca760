#include "ops/cpu/cpu_ops.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace lockstep {
namespace {

static_assert(kKvTile == kPageSize);

CpuMatrix matrix(TensorView v, int64_t row) {
  return {v.data + row * v.row_stride * static_cast<int64_t>(size_of(v.dtype)), v.row_stride, v.dtype == DType::bf16};
}
int64_t rows_a_run(int64_t cols) { return std::max<int64_t>(1, 16384 / std::max<int64_t>(1, cols)); }

}  // namespace

std::unique_ptr<Ops> make_cpu_ops(const CpuOptions& options) { return std::make_unique<CpuOps>(options); }

CpuOps::CpuOps(const CpuOptions& options)
    : kernels_(cpu_kernels(options.instruction_set.c_str())),
      pool_(options.n_threads),
      scratch_(static_cast<size_t>(options.n_threads)) {
  check(options.n_slots >= 0, options.n_slots, " slots");
  slots_.assign(static_cast<size_t>(options.n_slots), -1);
  adjustments_.resize(static_cast<size_t>(options.n_slots));
}

// ---- memory ----

Buffer CpuOps::allocate(size_t bytes) { return memory_.allocate(bytes); }

void CpuOps::upload(TensorView to, const float* from) {
  pool_.parallel_for(to.rows, rows_a_run(to.cols), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      kernels_.convert(matrix(to, r).data, to.dtype == DType::bf16, from + r * to.cols, false, to.cols);
    }
  });
}

void CpuOps::download(float* to, TensorView from) {
  pool_.parallel_for(from.rows, rows_a_run(from.cols), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      kernels_.convert(to + r * from.cols, false, matrix(from, r).data, from.dtype == DType::bf16, from.cols);
    }
  });
}

void CpuOps::copy_pages(PageWay way, const KvPool& pool, std::span<const HostPage> pages) {
  for (const HostPage& p : pages) check(p.page >= 0 && p.page < pool.n_pages, "page ", p.page, " of ", pool.n_pages);
  pool_.parallel_for(static_cast<int64_t>(pages.size()) * pool.n_layers, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const HostPage& page = pages[static_cast<size_t>(i / pool.n_layers)];
      const int64_t layer = i % pool.n_layers;
      std::byte* in_pool = pool.data + static_cast<size_t>(layer * pool.n_pages + page.page) * pool.page_bytes;
      std::byte* on_host = page.data + static_cast<size_t>(layer) * pool.page_bytes;
      if (way == PageWay::to_host)
        std::memcpy(on_host, in_pool, pool.page_bytes);
      else
        std::memcpy(in_pool, on_host, pool.page_bytes);
    }
  });
}

// ---- one step ----

DeviceBatch CpuOps::upload_batch(const StepBatch& b) {
  const int64_t n_tokens = b.n_tokens(), n_seqs = b.n_seqs();
  check(static_cast<int64_t>(b.positions.size()) == n_tokens, b.positions.size(), " positions of ", n_tokens, " tokens");
  check(static_cast<int64_t>(b.q_offsets.size()) == n_seqs + 1 && b.q_offsets[0] == 0 && b.q_offsets[n_seqs] == n_tokens,
        "q_offsets don't cover ", n_tokens, " tokens of ", n_seqs, " sequences");
  check(static_cast<int64_t>(b.page_offsets.size()) == n_seqs + 1 && b.page_offsets[0] == 0 &&
            b.page_offsets[n_seqs] == static_cast<int64_t>(b.pages.size()),
        "page_offsets don't cover ", b.pages.size(), " pages of ", n_seqs, " sequences");
  sequence_of_.resize(static_cast<size_t>(n_tokens));
  for (int64_t s = 0; s < n_seqs; ++s) {
    check(b.q_offsets[s] <= b.q_offsets[s + 1], "q_offsets of sequence ", s, " descend");
    const int64_t n_pages = b.page_offsets[s + 1] - b.page_offsets[s];
    const int64_t needed = (int64_t{b.kv_lengths[s]} + kPageSize - 1) / kPageSize;
    check(b.kv_lengths[s] >= 0 && n_pages >= needed, "sequence ", s, " has ", n_pages, " pages, needs ", needed);
    for (int64_t t = b.q_offsets[s]; t < b.q_offsets[s + 1]; ++t) {
      check(b.positions[t] >= 0 && b.positions[t] < b.kv_lengths[s], "position ", b.positions[t], " of ", b.kv_lengths[s]);
      check(t == b.q_offsets[s] || b.positions[t] == b.positions[t - 1] + 1, "positions of sequence ", s, " have a gap");
      sequence_of_[t] = static_cast<int32_t>(s);
    }
  }
  last_page_ = -1;
  for (const PageId page : b.pages) {
    check(page >= 0, "page ", page);
    last_page_ = std::max(last_page_, page);
  }
  sample_rows_.clear();
  score_rows_.clear();
  for (const ScoreRow& row : b.scores) {
    check(row.row >= 0 && row.row < n_tokens, "score of row ", row.row, " of ", n_tokens);
    score_rows_.push_back(row.row);
  }
  for (const LogitAdjustments& a : b.adjustments)
    check(a.slot >= 0 && a.slot < static_cast<int64_t>(slots_.size()), "slot ", a.slot, " of ", slots_.size());
  for (const SampleRow& row : b.samples) {
    sample_rows_.push_back(row.row);
    check(row.row >= 0 && row.row < n_tokens, "sample of row ", row.row, " of ", n_tokens);
    check(row.slot >= 0 && row.slot < static_cast<int64_t>(slots_.size()), "slot ", row.slot, " of ", slots_.size());
  }
  return {&b,
          n_tokens,
          b.token_ids.data(),
          b.positions.data(),
          b.q_offsets.data(),
          b.kv_lengths.data(),
          b.page_offsets.data(),
          b.pages.data(),
          sample_rows_.data(),
          score_rows_.data()};
}

void CpuOps::embed(TensorView out, TensorView table, const DeviceBatch& batch) {
  const int64_t n_tokens = batch.host->n_tokens();
  check(out.rows == n_tokens && out.cols == table.cols, "embedding ", out.rows, " x ", out.cols, ", expected ", n_tokens, " x ",
        table.cols);
  pool_.parallel_for(n_tokens, rows_a_run(out.cols), [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      TokenId token = batch.token_ids[t];
      if (is_reference(token)) {
        const int32_t slot = slot_of(token);
        check(slot < static_cast<int64_t>(slots_.size()), "slot ", slot, " of ", slots_.size());
        token = slots_[slot];
        check(token >= 0, "nothing was sampled into slot ", slot);
      }
      check(token < table.rows, "token ", token, " of ", table.rows);
      kernels_.convert(matrix(out, t).data, out.dtype == DType::bf16, matrix(table, token).data, table.dtype == DType::bf16,
                       out.cols);
    }
  });
}

void CpuOps::rms_norm(TensorView out, TensorView x, TensorView weight, float eps) {
  check(out.rows == x.rows && out.cols == x.cols && out.dtype == x.dtype, "rms_norm of ", x.rows, " x ", x.cols, " into ",
        out.rows, " x ", out.cols);
  check(weight.cols == x.cols && weight.dtype == DType::f32, "norm weight of ", weight.cols, ", expected f32 ", x.cols);
  pool_.parallel_for(x.rows, rows_a_run(x.cols), [&](int64_t begin, int64_t end, int) {
    kernels_.rms_norm(matrix(out, begin), matrix(x, begin), weight.row<float>(0), end - begin, x.cols, eps);
  });
}

void CpuOps::add(TensorView residual, TensorView delta) {
  check(residual.rows == delta.rows && residual.cols == delta.cols && residual.dtype == delta.dtype, "adding ", delta.rows,
        " x ", delta.cols, " to ", residual.rows, " x ", residual.cols);
  pool_.parallel_for(residual.rows, rows_a_run(residual.cols), [&](int64_t begin, int64_t end, int) {
    kernels_.add(matrix(residual, begin), matrix(delta, begin), end - begin, residual.cols);
  });
}

void CpuOps::add_rms_norm(TensorView out, TensorView residual, TensorView delta, TensorView weight, float eps) {
  check(residual.rows == delta.rows && residual.cols == delta.cols && residual.dtype == delta.dtype, "adding ", delta.rows,
        " x ", delta.cols, " to ", residual.rows, " x ", residual.cols);
  check(out.rows == residual.rows && out.cols == residual.cols && out.dtype == residual.dtype, "rms_norm of ", residual.rows,
        " x ", residual.cols, " into ", out.rows, " x ", out.cols);
  check(weight.cols == out.cols && weight.dtype == DType::f32, "norm weight of ", weight.cols, ", expected f32 ", out.cols);
  pool_.parallel_for(out.rows, rows_a_run(out.cols), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      kernels_.add(matrix(residual, r), matrix(delta, r), 1, out.cols);
      kernels_.rms_norm(matrix(out, r), matrix(residual, r), weight.row<float>(0), 1, out.cols, eps);
    }
  });
}

void CpuOps::silu_mul(TensorView out, TensorView gate_up) {
  check(out.rows == gate_up.rows && 2 * out.cols == gate_up.cols && out.dtype == gate_up.dtype, "silu_mul of ", gate_up.rows,
        " x ", gate_up.cols, " into ", out.rows, " x ", out.cols);
  pool_.parallel_for(out.rows, std::max<int64_t>(1, rows_a_run(out.cols) / 2), [&](int64_t begin, int64_t end, int) {
    kernels_.silu_mul(matrix(out, begin), matrix(gate_up, begin), end - begin, out.cols);
  });
}

void CpuOps::gather_rows(TensorView out, TensorView x, const int32_t* rows) {
  check(out.cols == x.cols, "gathering rows of ", x.cols, " into ", out.cols);
  for (int64_t r = 0; r < out.rows; ++r) {
    check(rows[r] >= 0 && rows[r] < x.rows, "row ", rows[r], " of ", x.rows);
    kernels_.convert(matrix(out, r).data, out.dtype == DType::bf16, matrix(x, rows[r]).data, x.dtype == DType::bf16, out.cols);
  }
}

// ---- sampling ----

StepOutcome& CpuOps::outcome_of(int64_t step) {
  check(step > collected_ && (outcomes_.empty() || outcomes_.back().step <= step), "step ", step, " is sampled out of order");
  if (outcomes_.empty() || outcomes_.back().step != step) outcomes_.push_back({step, {}});
  return outcomes_.back().tokens;
}

void CpuOps::sample(TensorView logits, const DeviceBatch& batch) {
  const auto& samples = batch.host->samples;
  check(logits.dtype == DType::f32 && logits.cols >= 1 && logits.rows == static_cast<int64_t>(samples.size()), "logits ",
        name_of(logits.dtype), " ", logits.rows, " x ", logits.cols, ", expected f32 with ", samples.size(), " rows");
  auto& tokens = outcome_of(batch.host->step).sampled;
  check(tokens.empty(), "step ", batch.host->step, " is sampled twice");
  tokens.resize(samples.size());
  for (const LogitAdjustments& begin : batch.host->adjustments) adjustments_[begin.slot] = SlotAdjustments(begin);
  pool_.parallel_for(logits.rows, 1, [&](int64_t begin, int64_t end, int worker) {
    Scratch& scratch = scratch_[worker];
    for (int64_t r = begin; r < end; ++r) {
      const float* raw = logits.row<float>(r);
      const float* adjusted = raw;
      if (samples[r].adjusted) {
        scratch.a.assign(raw, raw + logits.cols);
        adjustments_[samples[r].slot].apply(scratch.a.data(), logits.cols, samples[r].position);
        adjusted = scratch.a.data();
      }
      tokens[r] = sample_row(kernels_, raw, adjusted, logits.cols, samples[r], scratch.sampler);
    }
  });
  for (size_t r = 0; r < samples.size(); ++r) {
    slots_[samples[r].slot] = tokens[r].token;
    if (samples[r].adjusted) adjustments_[samples[r].slot].sampled(tokens[r].token);
  }
}

void CpuOps::score(TensorView logits, const DeviceBatch& batch, Range scores) {
  const auto& rows = batch.host->scores;
  check(logits.dtype == DType::f32 && logits.rows == scores.size() && scores.begin >= 0 &&
            scores.end <= static_cast<int64_t>(rows.size()),
        "scores ", scores.begin, " to ", scores.end, " of ", rows.size(), " with ", logits.rows, " rows of logits");
  auto& tokens = outcome_of(batch.host->step).scored;
  check(static_cast<int64_t>(tokens.size()) == scores.begin, "scores from ", scores.begin, " after ", tokens.size());
  tokens.resize(static_cast<size_t>(scores.end));
  pool_.parallel_for(logits.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r)
      tokens[scores.begin + r] = score_row(kernels_, logits.row<float>(r), logits.cols, rows[scores.begin + r]);
  });
}

StepOutcome CpuOps::collect(int64_t step) {
  check(step > collected_, "step ", step, " was collected already");
  check(outcomes_.empty() || outcomes_.front().step >= step, "step ", outcomes_.empty() ? 0 : outcomes_.front().step,
        " was not collected before ", step);
  collected_ = step;
  if (outcomes_.empty() || outcomes_.front().step != step) return {};  // a step without samples
  StepOutcome tokens = std::move(outcomes_.front().tokens);
  outcomes_.pop_front();
  return tokens;
}

}  // namespace lockstep
