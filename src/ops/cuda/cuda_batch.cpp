// A step's arrays on their way to the GPU: one copy for the batch, one for the attention's division of work.
#include <algorithm>
#include <cstring>

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

// Of this many positions at most, a sequence may be one warp's; and so many warps keep a GPU busy (about two rounds of an
// H200's).
constexpr int32_t kShort = 2048;
constexpr size_t kEnoughWarps = 3072;

}  // namespace

DeviceBatch CudaOps::upload_batch(const StepBatch& b) {
  const auto n_tokens = static_cast<size_t>(b.n_tokens()), n_seqs = static_cast<size_t>(b.n_seqs());
  check(b.positions.size() == n_tokens && b.q_offsets.size() == n_seqs + 1 && b.page_offsets.size() == n_seqs + 1,
        "a batch of ", n_tokens, " tokens and ", n_seqs, " sequences whose arrays don't fit");
  std::vector<int32_t> token_pages(n_tokens), sample_rows, score_rows;
  for (size_t s = 0; s < n_seqs; ++s)
    for (auto t = static_cast<size_t>(b.q_offsets[s]); t < static_cast<size_t>(b.q_offsets[s + 1]); ++t) {
      const auto page = static_cast<size_t>(b.page_offsets[s] + b.positions[t] / kPageSize);
      check(page < static_cast<size_t>(b.page_offsets[s + 1]), "token ", t, " lies beyond its sequence's pages");
      token_pages[t] = b.pages[page];
    }
  for (const SampleRow& row : b.samples) {
    check(row.slot >= 0 && row.slot < n_slots_, "slot ", row.slot, " of ", n_slots_);
    sample_rows.push_back(row.row);
  }
  for (const ScoreRow& row : b.scores) score_rows.push_back(row.row);

  const size_t bytes = Packer::bytes_of(b.token_ids) + Packer::bytes_of(b.positions) + Packer::bytes_of(b.q_offsets) +
                       Packer::bytes_of(b.kv_lengths) + Packer::bytes_of(b.page_offsets) + Packer::bytes_of(b.pages) +
                       Packer::bytes_of(token_pages) + Packer::bytes_of(sample_rows) + Packer::bytes_of(score_rows);
  if (batch_memory_.bytes() < bytes) check_cuda(cudaStreamSynchronize(stream_), "the step before");
  grow(batch_memory_, bytes, allocate_on_gpu);
  Packer pack(staging_.begin(bytes), batch_memory_.data());
  DeviceBatch batch;
  batch.host = &b;
  batch.token_ids = pack.put(b.token_ids);
  batch.positions = pack.put(b.positions);
  batch.q_offsets = pack.put(b.q_offsets);
  batch.kv_lengths = pack.put(b.kv_lengths);
  batch.page_offsets = pack.put(b.page_offsets);
  batch.pages = pack.put(b.pages);
  token_pages_ = pack.put(token_pages);
  batch.sample_rows = pack.put(sample_rows);
  batch.score_rows = pack.put(score_rows);
  staging_.send(batch_memory_.data(), pack.bytes());
  work_ = {};
  return batch;
}

// Made for the first layer of a step, used by all of them. The longest first, so that no block begins late and ends last.
const CudaOps::AttentionWork& CudaOps::attention_work(HeadShape heads, const DeviceBatch& batch) {
  if (work_.n_heads == heads.n_heads && work_.n_kv_heads == heads.n_kv_heads) return work_;
  const StepBatch& b = *batch.host;
  const auto group = static_cast<int32_t>(heads.n_heads / heads.n_kv_heads);
  std::vector<int32_t> each, few;
  std::vector<kernels::QueryTile> tiles;
  for (int32_t s = 0; s < static_cast<int32_t>(b.n_seqs()); ++s) {
    const int32_t n_new = b.q_offsets[static_cast<size_t>(s) + 1] - b.q_offsets[static_cast<size_t>(s)], n_rows = n_new * group;
    if (n_rows > kernels::kFewRows)
      for (int32_t row = 0; row < n_rows; row += kernels::kTileRows) tiles.push_back({s, row});
    else if (n_new == 1 && b.kv_lengths[static_cast<size_t>(s)] <= kShort)
      each.push_back(s);
    else
      few.push_back(s);
  }
  if (each.size() * static_cast<size_t>(heads.n_kv_heads) < kEnoughWarps) {
    few.insert(few.end(), each.begin(), each.end());
    each.clear();
  }
  const auto length = [&](int32_t s) { return b.kv_lengths[static_cast<size_t>(s)]; };
  const auto longer = [&](int32_t x, int32_t y) { return length(x) > length(y); };
  std::stable_sort(each.begin(), each.end(), longer);
  std::stable_sort(few.begin(), few.end(), longer);
  std::stable_sort(tiles.begin(), tiles.end(), [&](const kernels::QueryTile& x, const kernels::QueryTile& y) {
    return length(x.sequence) != length(y.sequence) ? length(x.sequence) > length(y.sequence) : x.first_row > y.first_row;
  });
  const size_t bytes = Packer::bytes_of(each) + Packer::bytes_of(few) + Packer::bytes_of(tiles);
  if (work_memory_.bytes() < bytes) check_cuda(cudaStreamSynchronize(stream_), "the step before");
  grow(work_memory_, bytes, allocate_on_gpu);
  Packer pack(work_staging_.begin(bytes), work_memory_.data());
  work_.n_heads = static_cast<int>(heads.n_heads), work_.n_kv_heads = static_cast<int>(heads.n_kv_heads);
  work_.each = pack.put(each);
  work_.few = pack.put(few);
  work_.tiles = pack.put(tiles);
  work_.n_each = static_cast<int>(each.size());
  work_.n_few = static_cast<int>(few.size());
  work_.n_tiles = static_cast<int>(tiles.size());
  work_staging_.send(work_memory_.data(), pack.bytes());
  return work_;
}

}  // namespace lockstep
