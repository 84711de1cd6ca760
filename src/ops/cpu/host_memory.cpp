#include "ops/cpu/host_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "base/error.h"

namespace lockstep {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kChunk = size_t{64} << 20;  // a power of two, and its own alignment: an address finds its chunk
constexpr size_t kShared = size_t{32} << 10, kOwn = kChunk / 4;  // buffers of this size up to that one share chunks
constexpr size_t kAlignment = 64;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kShareChunks = false;  // so that each buffer's borders are guarded
#else
constexpr bool kShareChunks = true;
#endif

struct ChunkHeader {
  std::atomic<size_t> n_users;
};
static_assert(sizeof(ChunkHeader) <= kAlignment);

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

std::byte* map_chunk() {
  void* area = mmap(nullptr, 2 * kChunk, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (area == MAP_FAILED) fail(ExitCode::environment, "out of memory: ", 2 * kChunk, " bytes of address space asked for");
  auto* begin = static_cast<std::byte*>(area);
  const size_t before = (kChunk - reinterpret_cast<uintptr_t>(begin) % kChunk) % kChunk;
  if (before > 0) munmap(begin, before);
  munmap(begin + before + kChunk, kChunk - before);
  madvise(begin + before, kChunk, MADV_HUGEPAGE);  // advice: it may fail, nothing depends on it
  new (begin + before) ChunkHeader{1};
  return begin + before;
}

void release_chunk_user(void* data) {
  auto* chunk = static_cast<std::byte*>(data) - reinterpret_cast<uintptr_t>(data) % kChunk;
  if (reinterpret_cast<ChunkHeader*>(chunk)->n_users.fetch_sub(1) == 1) munmap(chunk, kChunk);
}

}  // namespace

HostMemory::~HostMemory() {
  if (chunk_) release_chunk_user(chunk_);
}

Buffer HostMemory::allocate(size_t bytes) {
  check(bytes < size_t{1} << 62, "allocation of ", bytes, " bytes");
  if (kShareChunks && bytes >= kShared && bytes <= kOwn) {
    if (!chunk_ || used_ + bytes > kChunk) {
      std::byte* fresh = map_chunk();
      if (chunk_) release_chunk_user(chunk_);
      chunk_ = fresh;
      used_ = kAlignment;
    }
    std::byte* data = chunk_ + used_;
    used_ += round_up(bytes, kAlignment);
    ++reinterpret_cast<ChunkHeader*>(chunk_)->n_users;
    return Buffer(data, bytes, release_chunk_user);
  }
  const size_t alignment = bytes > kOwn ? kHugePage : kAlignment;
  const size_t rounded = round_up(std::max<size_t>(bytes, 1), alignment);
  void* data = std::aligned_alloc(alignment, rounded);
  if (!data) fail(ExitCode::environment, "out of memory: ", bytes, " bytes asked for");
  if (alignment == kHugePage) madvise(data, rounded, MADV_HUGEPAGE);
  return Buffer(
      data, bytes, +[](void* p) { std::free(p); });
}

}  // namespace lockstep
