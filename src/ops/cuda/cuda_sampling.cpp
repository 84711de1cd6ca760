// Sampling on the GPU: rules over, results back, and what is wished for slots. The host never waits here but in `collect`.
#include <algorithm>
#include <cstring>

#include "ops/cuda/cuda_ops.h"

namespace lockstep {

namespace {

size_t aligned(size_t bytes) { return (bytes + 15) / 16 * 16; }
int32_t limited(int32_t n_top) { return std::min(n_top, kernels::kMaxTop); }

// What the pinned memory of a step may have to hold.
size_t most_result_bytes(const StepBatch& b) {
  const size_t rows = b.samples.size() + b.scores.size();
  bool with_top = false;
  for (const SampleRow& r : b.samples) with_top |= r.n_logprobs > 0;
  for (const ScoreRow& r : b.scores) with_top |= r.n_logprobs > 0;
  return (rows + 2) * (sizeof(kernels::DrawnRow) + 16) + b.scores.size() * 16 +
         (with_top ? rows * kernels::kMaxTop * sizeof(kernels::TopEntry) : 0);
}

// Most likely first, ties by lower id.
std::vector<std::pair<TokenId, float>> ordered(const kernels::TopEntry* top, int32_t n) {
  std::vector<std::pair<TokenId, float>> entries;
  for (int32_t i = 0; i < n; ++i) entries.emplace_back(top[i].token, top[i].logprob);
  std::sort(entries.begin(), entries.end(),
            [](const auto& a, const auto& b) { return a.second != b.second ? a.second > b.second : a.first < b.first; });
  return entries;
}

}  // namespace

// Its pinned memory has room for all that the step can bring: none of it may move while the GPU writes there.
CudaOps::Pending& CudaOps::pending_of(const DeviceBatch& batch) {
  const int64_t step = batch.host->step;
  check(step > collected_ && (pending_.empty() || pending_.back().step <= step), "step ", step, " is sampled out of order");
  if (!pending_.empty() && pending_.back().step == step) return pending_.back();
  Pending fresh;
  if (!spare_.empty()) {
    fresh = std::move(spare_.back());
    spare_.pop_back();
  } else {
    fresh.done = std::make_unique<Event>(Event::Use::time);
  }
  std::swap(fresh.begun, begun_);
  fresh.step = step;
  fresh.used = 0;
  fresh.parts.clear();
  grow(fresh.memory, most_result_bytes(*batch.host), allocate_pinned);
  return pending_.emplace_back(std::move(fresh));
}

// The rules of n_rows rows to the GPU, and room for what comes of them.
void CudaOps::send_rules(const void* rules, size_t bytes, size_t n_rows) {
  const size_t drawn_bytes = n_rows * sizeof(kernels::DrawnRow),
               top_bytes = n_rows * kernels::kMaxTop * sizeof(kernels::TopEntry);
  if (rules_.bytes() < bytes || drawn_.bytes() < drawn_bytes || top_.bytes() < top_bytes)
    check_cuda(cudaStreamSynchronize(stream_), "the step before");
  grow(rules_, bytes, allocate_on_gpu);
  grow(drawn_, drawn_bytes, allocate_on_gpu);
  grow(top_, top_bytes, allocate_on_gpu);
  std::memcpy(sample_staging_.begin(bytes), rules, bytes);
  sample_staging_.send(rules_.data(), bytes);
}

// The rows just drawn or scored, into the step's pinned memory; `memory` is large enough for the step already.
void CudaOps::fetch(Pending& pending, Part part, bool with_top) {
  const size_t drawn_bytes = aligned(part.rows.size() * sizeof(kernels::DrawnRow));
  const size_t top_bytes = with_top ? part.rows.size() * kernels::kMaxTop * sizeof(kernels::TopEntry) : 0;
  part.drawn_at = pending.used;
  part.top_at = pending.used + drawn_bytes;
  pending.used += drawn_bytes + top_bytes;
  check(pending.used <= pending.memory.bytes(), "results of ", pending.used, " bytes in ", pending.memory.bytes());
  check_cuda(cudaMemcpyAsync(pending.memory.data() + part.drawn_at, drawn_.data(), part.rows.size() * sizeof(kernels::DrawnRow),
                             cudaMemcpyDeviceToHost, stream_),
             "fetching tokens");
  if (with_top)
    check_cuda(cudaMemcpyAsync(pending.memory.data() + part.top_at, top_.data(), top_bytes, cudaMemcpyDeviceToHost, stream_),
               "fetching log-probabilities");
  pending.parts.push_back(std::move(part));
  pending.done->record(stream_);
}

// ---- wishes ----

void CudaOps::begin_adjustments(const DeviceBatch& batch, int64_t vocab) {
  const auto stride = static_cast<size_t>(vocab);
  for (const LogitAdjustments& a : batch.host->adjustments) {
    check(a.slot >= 0 && a.slot < n_slots_, "slot ", a.slot, " of ", n_slots_);
    grow(counts_, static_cast<size_t>(n_slots_) * stride * sizeof(uint32_t), allocate_on_gpu);
    const size_t n = a.prompt.size() + a.completion.size();
    if (new_tokens_.bytes() < n * sizeof(int32_t)) check_cuda(cudaStreamSynchronize(stream_), "the step before");
    grow(new_tokens_, n * sizeof(int32_t), allocate_on_gpu);
    if (n > 0) {
      std::byte* host = sample_staging_.begin(n * sizeof(int32_t));
      std::memcpy(host, a.prompt.data(), a.prompt.size() * sizeof(int32_t));
      std::memcpy(host + a.prompt.size() * sizeof(int32_t), a.completion.data(), a.completion.size() * sizeof(int32_t));
      sample_staging_.send(new_tokens_.data(), n * sizeof(int32_t));
    }
    const auto* tokens = reinterpret_cast<const int32_t*>(new_tokens_.data());
    check_cuda(kernels::count_tokens(reinterpret_cast<uint32_t*>(counts_.data()) + static_cast<size_t>(a.slot) * stride,
                                     static_cast<int>(vocab), tokens, static_cast<int>(a.prompt.size()),
                                     tokens + a.prompt.size(), static_cast<int>(a.completion.size()), stream_),
               "counting tokens");
    wishes_[static_cast<size_t>(a.slot)] = a;
  }
}

// The rows that wishes change, changed; row_of[i]: the row of sample i among them, or -1.
const float* CudaOps::adjusted_logits(TensorView logits, const DeviceBatch& batch, std::vector<int32_t>& row_of) {
  std::vector<kernels::AdjustRule> rules;
  std::vector<kernels::Bias> biases;
  std::vector<int32_t> ends;
  row_of.assign(batch.host->samples.size(), -1);
  for (size_t i = 0; i < batch.host->samples.size(); ++i) {
    const SampleRow& row = batch.host->samples[i];
    if (!row.adjusted) continue;
    const LogitAdjustments& a = wishes_[static_cast<size_t>(row.slot)];
    row_of[i] = static_cast<int32_t>(rules.size());
    kernels::AdjustRule rule{.row = static_cast<int32_t>(i),
                             .slot = row.slot,
                             .presence = a.presence_penalty,
                             .frequency = a.frequency_penalty,
                             .repetition = a.repetition_penalty,
                             .bias_begin = static_cast<int32_t>(biases.size()),
                             .bias_end = 0,
                             .ends_begin = static_cast<int32_t>(ends.size()),
                             .ends_end = 0};
    for (const auto& [token, bias] : a.bias) biases.push_back({token, bias});
    if (row.position < a.min_tokens) ends.insert(ends.end(), a.end_tokens.begin(), a.end_tokens.end());
    rule.bias_end = static_cast<int32_t>(biases.size());
    rule.ends_end = static_cast<int32_t>(ends.size());
    rules.push_back(rule);
  }
  if (rules.empty()) return nullptr;
  const size_t rule_bytes = aligned(rules.size() * sizeof rules[0]),
               bias_bytes = aligned(biases.size() * sizeof(kernels::Bias));
  const size_t bytes = rule_bytes + bias_bytes + aligned(ends.size() * sizeof(int32_t));
  const size_t adjusted_bytes = rules.size() * static_cast<size_t>(logits.cols) * sizeof(float);
  if (sample_memory_.bytes() < bytes || adjusted_.bytes() < adjusted_bytes)
    check_cuda(cudaStreamSynchronize(stream_), "the step before");
  grow(sample_memory_, bytes, allocate_on_gpu);
  grow(adjusted_, adjusted_bytes, allocate_on_gpu);
  std::byte* host = sample_staging_.begin(bytes);
  std::memcpy(host, rules.data(), rules.size() * sizeof rules[0]);
  std::memcpy(host + rule_bytes, biases.data(), biases.size() * sizeof(kernels::Bias));
  std::memcpy(host + rule_bytes + bias_bytes, ends.data(), ends.size() * sizeof(int32_t));
  sample_staging_.send(sample_memory_.data(), bytes);
  auto* adjusted = reinterpret_cast<float*>(adjusted_.data());
  check_cuda(
      kernels::adjust(adjusted, logits.row<float>(0), logits.row_stride, static_cast<int>(logits.cols),
                      reinterpret_cast<const kernels::AdjustRule*>(sample_memory_.data()), static_cast<int>(rules.size()),
                      reinterpret_cast<const kernels::Bias*>(sample_memory_.data() + rule_bytes),
                      reinterpret_cast<const int32_t*>(sample_memory_.data() + rule_bytes + bias_bytes),
                      reinterpret_cast<const uint32_t*>(counts_.data()), stream_),
      "adjusting logits");
  return adjusted;
}

// ---- tokens ----

void CudaOps::sample(TensorView logits, const DeviceBatch& batch) {
  const auto& samples = batch.host->samples;
  check(logits.dtype == DType::f32 && logits.rows == static_cast<int64_t>(samples.size()), "logits ", name_of(logits.dtype),
        " ", logits.rows, " x ", logits.cols, ", expected f32 with ", samples.size(), " rows");
  begin_adjustments(batch, logits.cols);
  std::vector<int32_t> adjusted_row;
  const float* adjusted = adjusted_logits(logits, batch, adjusted_row);

  std::vector<kernels::DrawRule> rules;
  Part part{.rows = {}, .scored = false, .drawn_at = 0, .top_at = 0};
  bool with_top = false;
  for (size_t i = 0; i < samples.size(); ++i) {
    const SampleRow& r = samples[i];
    rules.push_back({.key = r.draw_key,
                     .slot = r.slot,
                     .position = r.position,
                     .top_k = r.top_k,
                     .adjusted = adjusted_row[i],
                     .n_top = limited(r.n_logprobs),
                     .temperature = r.temperature,
                     .top_p = r.top_p,
                     .min_p = std::min(r.min_p, 1.0f)});
    part.rows.push_back({r.request, r.position});
    with_top |= r.n_logprobs > 0;
  }
  Pending& pending = pending_of(batch);
  send_rules(rules.data(), rules.size() * sizeof rules[0], rules.size());
  check_cuda(kernels::sample(logits.row<float>(0), logits.row_stride, adjusted, logits.cols, static_cast<int>(logits.rows),
                             static_cast<int>(logits.cols), reinterpret_cast<const kernels::DrawRule*>(rules_.data()),
                             reinterpret_cast<int32_t*>(slots_.data()), reinterpret_cast<uint32_t*>(counts_.data()),
                             reinterpret_cast<kernels::DrawnRow*>(drawn_.data()),
                             reinterpret_cast<kernels::TopEntry*>(top_.data()), stream_),
             "sampling");
  fetch(pending, std::move(part), with_top);
}

void CudaOps::score(TensorView logits, const DeviceBatch& batch, Range scores) {
  const auto& all = batch.host->scores;
  check(logits.dtype == DType::f32 && logits.rows == scores.size() && scores.begin >= 0 &&
            scores.end <= static_cast<int64_t>(all.size()),
        "scores ", scores.begin, " to ", scores.end, " of ", all.size(), " with ", logits.rows, " rows of logits");
  std::vector<kernels::ScoreRule> rules;
  Part part{.rows = {}, .scored = true, .drawn_at = 0, .top_at = 0};
  bool with_top = false;
  for (int64_t i = scores.begin; i < scores.end; ++i) {
    const ScoreRow& r = all[static_cast<size_t>(i)];
    check(r.target >= 0 && r.target < logits.cols, "scoring token ", r.target, " of ", logits.cols);
    rules.push_back({r.target, limited(r.n_logprobs)});
    part.rows.push_back({r.request, r.position});
    with_top |= r.n_logprobs > 0;
  }
  Pending& pending = pending_of(batch);
  send_rules(rules.data(), rules.size() * sizeof rules[0], rules.size());
  check_cuda(kernels::score(logits.row<float>(0), logits.row_stride, static_cast<int>(logits.rows),
                            static_cast<int>(logits.cols), reinterpret_cast<const kernels::ScoreRule*>(rules_.data()),
                            reinterpret_cast<kernels::DrawnRow*>(drawn_.data()),
                            reinterpret_cast<kernels::TopEntry*>(top_.data()), stream_),
             "scoring");
  fetch(pending, std::move(part), with_top);
}

StepOutcome CudaOps::collect(int64_t step) {
  check(step > collected_, "step ", step, " was collected already");
  check(pending_.empty() || pending_.front().step >= step, "step ", pending_.empty() ? 0 : pending_.front().step,
        " was not collected before ", step);
  collected_ = step;
  StepOutcome outcome;
  if (pending_.empty() || pending_.front().step != step) return outcome;  // a step without samples
  Pending pending = std::move(pending_.front());
  pending_.pop_front();
  pending.done->wait();
  outcome.device_s = pending.done->seconds_since(*pending.begun);
  for (const Part& part : pending.parts) {
    const auto* drawn = reinterpret_cast<const kernels::DrawnRow*>(pending.memory.data() + part.drawn_at);
    const auto* top = reinterpret_cast<const kernels::TopEntry*>(pending.memory.data() + part.top_at);
    auto& tokens = part.scored ? outcome.scored : outcome.sampled;
    for (size_t i = 0; i < part.rows.size(); ++i) {
      tokens.push_back({.request = part.rows[i].request,
                        .token = drawn[i].token,
                        .position = part.rows[i].position,
                        .finite = drawn[i].finite != 0,
                        .logprob = drawn[i].logprob,
                        .top = ordered(top + i * kernels::kMaxTop, drawn[i].n_top)});
    }
  }
  spare_.push_back(std::move(pending));
  return outcome;
}

}  // namespace lockstep
