// A step's arrays on their way to the GPU: one copy for the batch, one for the attention's division of work.
#include <algorithm>
#include <cstring>
#include <utility>

#include "ops/cuda/cuda_ops.h"

namespace lockstep {
namespace {

// Arrays one after the other, each aligned to 16 bytes; first sized, then written, with the same calls.
class Packer {
 public:
  Packer(std::byte* host, std::byte* device) : host_(host), device_(device) {}

  template <class T>
  const T* put(const std::vector<T>& values) {
    const auto* on_device = reinterpret_cast<const T*>(device_ + at_);
    if (!values.empty()) std::memcpy(host_ + at_, values.data(), values.size() * sizeof(T));
    at_ += bytes_of(values);
    return on_device;
  }
  template <class T>
  static size_t bytes_of(const std::vector<T>& values) {
    return (values.size() * sizeof(T) + 15) / 16 * 16;
  }
  size_t bytes() const { return at_; }

 private:
  std::byte *host_, *device_;
  size_t at_ = 0;
};

// Which sequences attention's kernels take; the longest first, so that no block begins late and ends last.
struct AttentionLists {
  std::vector<int32_t> each, few;
  int32_t few_rows = 0;  // the most of a sequence in `few`
  std::vector<kernels::QueryTile> tiles;
};

// A sequence may be one warp's if it has kShort positions at most, and half of what a warp has on average, so that no warp ends
// long after the others: a GPU works on about kWarpsAtOnce at a time (an H200's 132 multiprocessors), and is busy with twice
// as many. Sequences of kAnyway positions are over soon in any case.
constexpr int64_t kShort = 2048, kAnyway = 256;
constexpr int64_t kWarpsAtOnce = 1584;

int64_t longest_of_one_warp(const StepBatch& b, HeadShape heads) {
  int64_t sum = 0;
  for (const int32_t length : b.kv_lengths) sum += length;
  return std::min(kShort, std::max(kAnyway, sum * heads.n_kv_heads / kWarpsAtOnce / 2));
}

AttentionLists lists_of(const StepBatch& b, HeadShape heads) {
  const auto group = static_cast<int32_t>(heads.n_heads / heads.n_kv_heads);
  const int64_t longest = longest_of_one_warp(b, heads);
  AttentionLists lists;
  for (int32_t s = 0; s < static_cast<int32_t>(b.n_seqs()); ++s) {
    const int32_t n_new = b.q_offsets[static_cast<size_t>(s) + 1] - b.q_offsets[static_cast<size_t>(s)], n_rows = n_new * group;
    if (n_rows > kernels::kFewRows)
      for (int32_t row = 0; row < n_rows; row += kernels::kTileRows) lists.tiles.push_back({s, row});
    else if (n_new == 1 && b.kv_lengths[static_cast<size_t>(s)] <= longest)
      lists.each.push_back(s);
    else
      lists.few.push_back(s);
    if (n_rows <= kernels::kFewRows) lists.few_rows = std::max(lists.few_rows, n_rows);
  }
  const auto n_warps = static_cast<int64_t>(lists.each.size() + 4 * lists.few.size()) * heads.n_kv_heads;
  if (n_warps < 2 * kWarpsAtOnce) {
    lists.few.insert(lists.few.end(), lists.each.begin(), lists.each.end());
    lists.each.clear();
  }
  const auto length = [&](int32_t s) { return b.kv_lengths[static_cast<size_t>(s)]; };
  const auto longer = [&](int32_t x, int32_t y) { return length(x) > length(y); };
  std::stable_sort(lists.each.begin(), lists.each.end(), longer);
  std::stable_sort(lists.few.begin(), lists.few.end(), longer);
  std::stable_sort(lists.tiles.begin(), lists.tiles.end(), [&](const kernels::QueryTile& x, const kernels::QueryTile& y) {
    return length(x.sequence) != length(y.sequence) ? length(x.sequence) > length(y.sequence) : x.first_row > y.first_row;
  });
  return lists;
}

// What the kernels read beside the batch's own arrays.
struct RowArrays {
  std::vector<int32_t> token_pages;  // [n_tokens]
  std::vector<int32_t> sample_rows, score_rows;
};

RowArrays rows_of(const StepBatch& b, int64_t n_slots) {
  const auto n_tokens = static_cast<size_t>(b.n_tokens()), n_seqs = static_cast<size_t>(b.n_seqs());
  check(b.positions.size() == n_tokens && b.q_offsets.size() == n_seqs + 1 && b.page_offsets.size() == n_seqs + 1,
        "a batch of ", n_tokens, " tokens and ", n_seqs, " sequences whose arrays don't fit");
  RowArrays rows;
  rows.token_pages.resize(n_tokens);
  for (size_t s = 0; s < n_seqs; ++s)
    for (auto t = static_cast<size_t>(b.q_offsets[s]); t < static_cast<size_t>(b.q_offsets[s + 1]); ++t) {
      const auto page = static_cast<size_t>(b.page_offsets[s] + b.positions[t] / kPageSize);
      check(page < static_cast<size_t>(b.page_offsets[s + 1]), "token ", t, " lies beyond its sequence's pages");
      rows.token_pages[t] = b.pages[page];
    }
  for (const SampleRow& row : b.samples) {
    check(row.slot >= 0 && row.slot < n_slots, "slot ", row.slot, " of ", n_slots);
    rows.sample_rows.push_back(row.row);
  }
  for (const ScoreRow& row : b.scores) rows.score_rows.push_back(row.row);
  return rows;
}

// Few different numbers of rows, none of them much above the number asked for.
int64_t rounded_rows(int64_t n, int64_t most) {
  const int64_t unit = n <= 64 ? 8 : n <= 256 ? 16 : n <= 1024 ? 32 : 64;
  return std::min((n + unit - 1) / unit * unit, most);
}

template <class T>
std::vector<T> filled(std::vector<T> values, int64_t n, T value) {
  values.resize(static_cast<size_t>(n), value);
  return values;
}

}  // namespace

DeviceBatch CudaOps::upload_batch(const StepBatch& b) {
  if (!begun_) begun_ = std::make_unique<Event>(Event::Use::time);
  begun_->record(stream_);
  recorded_ = is_recorded(b);
  if (recorded_) return upload_decodes(b);
  const RowArrays rows = rows_of(b, n_slots_);
  const size_t bytes = Packer::bytes_of(b.token_ids) + Packer::bytes_of(b.positions) + Packer::bytes_of(b.q_offsets) +
                       Packer::bytes_of(b.kv_lengths) + Packer::bytes_of(b.page_offsets) + Packer::bytes_of(b.pages) +
                       Packer::bytes_of(rows.token_pages) + Packer::bytes_of(rows.sample_rows) +
                       Packer::bytes_of(rows.score_rows);
  if (batch_memory_.bytes() < bytes) check_cuda(cudaStreamSynchronize(stream_), "the step before");
  grow(batch_memory_, bytes, allocate_on_gpu);
  Packer pack(staging_.begin(bytes), batch_memory_.data());
  DeviceBatch batch;
  batch.host = &b;
  batch.n_rows = b.n_tokens();
  batch.token_ids = pack.put(b.token_ids);
  batch.positions = pack.put(b.positions);
  batch.q_offsets = pack.put(b.q_offsets);
  batch.kv_lengths = pack.put(b.kv_lengths);
  batch.page_offsets = pack.put(b.page_offsets);
  batch.pages = pack.put(b.pages);
  token_pages_ = pack.put(rows.token_pages);
  batch.sample_rows = pack.put(rows.sample_rows);
  batch.score_rows = pack.put(rows.score_rows);
  staging_.send(batch_memory_.data(), pack.bytes());
  work_ = {};
  return batch;
}

// Made for the first layer of a step, used by all of them.
const CudaOps::AttentionWork& CudaOps::attention_work(HeadShape heads, const DeviceBatch& batch) {
  const auto same = [](HeadShape a, HeadShape b) { return a.n_heads == b.n_heads && a.n_kv_heads == b.n_kv_heads; };
  if (same(work_.heads, heads)) return work_;
  check(!recorded_, "a recorded step of other heads");
  heads_ = heads;
  const AttentionLists lists = lists_of(*batch.host, heads);
  const size_t bytes = Packer::bytes_of(lists.each) + Packer::bytes_of(lists.few) + Packer::bytes_of(lists.tiles);
  if (work_memory_.bytes() < bytes) check_cuda(cudaStreamSynchronize(stream_), "the step before");
  grow(work_memory_, bytes, allocate_on_gpu);
  Packer pack(work_staging_.begin(bytes), work_memory_.data());
  work_ = {.heads = heads,
           .each = pack.put(lists.each),
           .few = pack.put(lists.few),
           .tiles = pack.put(lists.tiles),
           .n_each = static_cast<int>(lists.each.size()),
           .n_few = static_cast<int>(lists.few.size()),
           .few_rows = lists.few_rows,
           .n_tiles = static_cast<int>(lists.tiles.size())};
  work_staging_.send(work_memory_.data(), pack.bytes());
  return work_;
}

// ---- steps that are recorded ----

bool CudaOps::is_recorded(const StepBatch& b) const {
  return b.n_tokens() == b.n_seqs() && b.n_tokens() > 0 && b.n_tokens() <= most_recorded_ && heads_.n_kv_heads > 0 &&
         heads_.n_heads / heads_.n_kv_heads <= kernels::kFewRows;
}

// All arrays have room for most_recorded_ rows, so that each begins at the same place in every step; the pages, of which there
// is any number, come last. An idle row has token 0 at position 0, no page and no sequence.
DeviceBatch CudaOps::upload_decodes(const StepBatch& b) {
  const RowArrays rows = rows_of(b, n_slots_);
  check(rows.score_rows.empty(), "a step of new tokens that scores");
  const AttentionLists lists = lists_of(b, heads_);
  const int64_t n = most_recorded_;
  const size_t bytes = 9 * static_cast<size_t>((n + 1) * 4 + 16) + Packer::bytes_of(b.pages);
  if (decode_memory_.bytes() < bytes) {
    check_cuda(cudaStreamSynchronize(stream_), "the step before");
    graphs_.clear();  // they know the old place
    grow(decode_memory_, bytes, allocate_on_gpu);
  }
  Packer pack(staging_.begin(bytes), decode_memory_.data());
  DeviceBatch batch;
  batch.host = &b;
  batch.n_rows = rounded_rows(b.n_seqs(), n);
  batch.token_ids = pack.put(filled(b.token_ids, n, 0));
  batch.positions = pack.put(filled(b.positions, n, 0));
  batch.q_offsets = pack.put(filled(b.q_offsets, n + 1, 0));
  batch.kv_lengths = pack.put(filled(b.kv_lengths, n, 0));
  batch.page_offsets = pack.put(filled(b.page_offsets, n + 1, 0));
  batch.sample_rows = pack.put(filled(rows.sample_rows, n, 0));
  token_pages_ = pack.put(filled(rows.token_pages, n, -1));
  const auto n_rows = static_cast<int>(batch.n_rows);
  work_ = {.heads = heads_,
           .n_each = lists.each.empty() ? 0 : n_rows,
           .n_few = lists.few.empty() ? 0 : n_rows,
           .few_rows = lists.few_rows};
  work_.each = pack.put(filled(lists.each, n, -1));
  work_.few = pack.put(filled(lists.few, n, -1));
  batch.pages = pack.put(b.pages);
  staging_.send(decode_memory_.data(), pack.bytes());
  return batch;
}

// The first time a size comes its calls are launched one by one, since products then look for their algorithms; the second time
// they are recorded.
void CudaOps::replayable(const DeviceBatch& batch, const std::function<void()>& launches) {
  if (!recorded_) return launches();
  Graph& graph = graphs_[{batch.n_rows, work_.n_each > 0, work_.n_few > 0}];
  if (!std::exchange(graph.seen, true)) return launches();
  if (graph.exec == nullptr) {
    cudaGraph_t record = nullptr;
    check_cuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "recording a step");
    try {
      launches();
    } catch (...) {
      cudaStreamEndCapture(stream_, &record);
      if (record != nullptr) cudaGraphDestroy(record);
      throw;
    }
    check_cuda(cudaStreamEndCapture(stream_, &record), "recording a step");
    const cudaError_t error = cudaGraphInstantiate(&graph.exec, record, 0);
    cudaGraphDestroy(record);
    check_cuda(error, "making a graph of a step");
  }
  check_cuda(cudaGraphLaunch(graph.exec, stream_), "replaying a step");
}

}  // namespace lockstep
