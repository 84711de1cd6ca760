#include "comm/node_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "base/bytes.h"
#include "base/durable_file.h"

namespace lockstep {

namespace {

// Of the first rank: pages that are really there, so that using them can't fail.
FileHandle make_memory(size_t bytes) {
  FileHandle file(::memfd_create("lockstep", MFD_CLOEXEC));
  if (file.get() >= 0 && ::posix_fallocate(file.get(), 0, static_cast<off_t>(bytes)) != 0) file.close();
  return file;
}

std::shared_ptr<std::byte> map(int fd, size_t bytes) {
  if (fd < 0 || ::lseek(fd, 0, SEEK_END) != static_cast<off_t>(bytes)) return nullptr;
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return nullptr;
  return {static_cast<std::byte*>(data), [bytes](std::byte* p) { ::munmap(p, bytes); }};
}

}  // namespace

std::shared_ptr<std::byte> make_node_memory(Communicator& node, size_t bytes) {
  // The first rank's token lies in the memory while the others look for it: a number in /proc may be another process's.
  const std::string token = random_token();
  check(bytes >= token.size(), bytes, " bytes to share");
  const bool first = node.rank() == 0;
  FileHandle file;
  std::shared_ptr<std::byte> memory;
  if (first) {
    file = make_memory(bytes);
    memory = map(file.get(), bytes);
    if (memory) std::memcpy(memory.get(), token.data(), token.size());
  }
  ByteWriter w;
  w.put_string(concat("/proc/", ::getpid(), "/fd/", file.get()));
  w.put_string(token);
  const auto said = node.exchange(w.bytes());
  if (!first) {
    ByteReader r(said[0]);
    const std::string path = r.get_string(), wanted = r.get_string();
    int error = 0;
    file = try_open(path, O_RDWR, error);
    memory = map(file.get(), bytes);
    if (memory && std::memcmp(memory.get(), wanted.data(), wanted.size()) != 0) memory = nullptr;
  }
  const bool everywhere = smallest(node, memory != nullptr ? 1 : 0) == 1;
  if (everywhere && first) std::memset(memory.get(), 0, token.size());
  node.barrier();
  return everywhere ? memory : nullptr;
}

}  // namespace lockstep
