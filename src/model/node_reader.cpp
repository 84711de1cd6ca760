#include "model/node_reader.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <span>

#include "comm/patience.h"

namespace lockstep {

// Where the first rank that fails leaves its reason. Zeros at first; lies in the shared memory.
struct NodeReader::Failure {
  enum State : uint32_t { none, being_written, written };
  uint32_t state;
  int32_t code;
  char what[4000];
};

namespace {

constexpr size_t kHeadBytes = 4096;   // of the Failure
constexpr size_t kCounterBytes = 64;  // of a group's arrivals: a cache line

struct Membership {  // of one rank in one group of those that share memory
  int area = -1;     // -1: nobody to share with
  int me = 0, size = 1;
};

struct Areas {
  int n_areas = 0;
  std::vector<Membership> twins, embedding;  // [n_ranks of the node]
};

// Ranks of equal key form a group; key -1: none.
template <class Key>
std::vector<Membership> group_by(const std::vector<Place>& places, int& n_areas, const Key& key) {
  std::vector<Membership> members(places.size());
  for (size_t i = 0; i < places.size(); ++i) {
    if (key(places[i]) < 0) continue;
    size_t first = places.size();
    int before = 0, size = 0;
    for (size_t j = 0; j < places.size(); ++j) {
      if (key(places[j]) != key(places[i])) continue;
      first = std::min(first, j);
      before += j < i;
      ++size;
    }
    const int area = size == 1 ? -1 : first == i ? n_areas++ : members[first].area;
    members[i] = {area, before, size};
  }
  return members;
}

Areas areas_of(const std::vector<Place>& places, int pp, bool tied) {
  Areas areas;
  areas.twins = group_by(places, areas.n_areas, [](const Place& p) { return (int64_t{p.pp} << 32) + p.tp; });
  areas.embedding =
      group_by(places, areas.n_areas, [&](const Place& p) { return int64_t{p.pp == 0 || (tied && p.pp == pp - 1) ? 0 : -1}; });
  return areas;
}

constexpr size_t kAreaBytes = kCounterBytes + 2 * NodeReader::kBufferBytes;

}  // namespace

size_t NodeReader::bytes_for(const std::vector<Place>& places, int pp, bool tied) {
  const Areas areas = areas_of(places, pp, tied);
  return areas.n_areas == 0 ? 0 : kHeadBytes + static_cast<size_t>(areas.n_areas) * kAreaBytes;
}

NodeReader::NodeReader(const std::vector<Place>& places, int me, int pp, bool tied, std::shared_ptr<std::byte> memory)
    : memory_(std::move(memory)) {
  static_assert(sizeof(Failure) <= kHeadBytes);
  if (!memory_) return;
  failure_ = reinterpret_cast<Failure*>(memory_.get());
  const Areas areas = areas_of(places, pp, tied);
  const auto place_in = [&](const Membership& member) {
    if (member.area < 0) return Group{};
    std::byte* area = memory_.get() + kHeadBytes + static_cast<size_t>(member.area) * kAreaBytes;
    return Group{member.me, member.size, reinterpret_cast<uint64_t*>(area), area + kCounterBytes};
  };
  twins_ = place_in(areas.twins[static_cast<size_t>(me)]);
  embedding_ = place_in(areas.embedding[static_cast<size_t>(me)]);
}

FetchBytes NodeReader::fetch_of(const std::string& tensor) {
  Group& group = tensor == "model.embed_tokens.weight" ? embedding_ : twins_;
  return [this, &group, tensor](const File& file, uint64_t offset, size_t n) { return fetch(group, tensor, file, offset, n); };
}

const std::byte* NodeReader::fetch(Group& group, const std::string& tensor, const File& file, uint64_t offset, size_t n) {
  if (group.size == 1 || n > kBufferBytes) {
    if (own_.size() < n) own_.resize(n);
    read(tensor, file, offset, std::span(own_).first(n));
    return own_.data();
  }
  // Whoever still uses this buffer, of the call before last, has not arrived at the last one's meeting.
  std::byte* buffer = group.buffers + group.n_calls % 2 * kBufferBytes;
  constexpr size_t kLeastBytes = size_t{64} << 10;  // less is not worth dividing
  const size_t part = std::max((n + group.size - 1) / group.size, kLeastBytes);
  const size_t begin = std::min(n, part * group.me), end = std::min(n, begin + part);
  if (end > begin) read(tensor, file, offset + begin, {buffer + begin, end - begin});
  meet(group);
  return buffer;
}

void NodeReader::read(const std::string& tensor, const File& file, uint64_t offset, std::span<std::byte> out) {
  try {
    file.read(offset, out);
  } catch (const Error& e) {
    lockstep::fail(e.code, "tensor '", tensor, "': ", e.what());
  }
  bytes_read_ += out.size();
}

// Until every member of the group has come to its call of this number.
void NodeReader::meet(Group& group) {
  const std::atomic_ref arrivals(*group.arrivals);
  const std::atomic_ref state(failure_->state);
  const uint64_t all = ++group.n_calls * static_cast<uint64_t>(group.size);
  arrivals.fetch_add(1, std::memory_order_acq_rel);
  const double limit_s = comm_timeout_s();
  for (Patience patience(limit_s); arrivals.load(std::memory_order_acquire) < all;) {
    if (state.load(std::memory_order_acquire) == Failure::written)
      lockstep::fail(static_cast<ExitCode>(failure_->code), failure_->what);
    if (!patience.wait())
      lockstep::fail(ExitCode::communication, "reading weights: ", limit_s, " s without the other ranks of this node");
  }
}

void NodeReader::fail(ExitCode code, const std::string& what) {
  if (!failure_) return;
  const std::atomic_ref state(failure_->state);
  uint32_t none = Failure::none;
  if (!state.compare_exchange_strong(none, Failure::being_written)) return;  // another was first
  failure_->code = static_cast<int32_t>(code);
  what.copy(failure_->what, sizeof failure_->what - 1);  // the rest is zeros
  state.store(Failure::written, std::memory_order_release);
}

}  // namespace lockstep
