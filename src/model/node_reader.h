// The ranks of a node read the weights' files together, so that each byte is read once a node: ranks that need the same rows
// make the same calls in the same order, each reads a part of what a call asks for into memory that all see, and goes on when
// every part is there. Two buffers of 4 MiB a group, used in turn, so that the quick read ahead while the slow still convert.
// Nothing waits for a rank that has failed. Not for: what is read and where it goes (weights.h).
//   NodeReader reader(places, me, pp, tied, memory);   checkpoint.read_rows(name, rows, out, reader.fetch_of(name));
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "checkpoint/file.h"
#include "mesh/mesh.h"

namespace lockstep {

class NodeReader {
 public:
  static constexpr size_t kBufferBytes = size_t{4} << 20;

  NodeReader() : NodeReader({Place{}}, 0, 1, false, nullptr) {}  // alone
  // places: of the node's ranks, the same on all of them; this is places[me]. tied: the head's rows are the embedding's.
  // memory: bytes_for(...) of zeros that all of them see, or null: each reads all for itself.
  NodeReader(const std::vector<Place>& places, int me, int pp, bool tied, std::shared_ptr<std::byte> memory);
  NodeReader(const NodeReader&) = delete;
  NodeReader& operator=(const NodeReader&) = delete;

  static size_t bytes_for(const std::vector<Place>& places, int pp, bool tied);  // 0 where no two ranks need the same

  // For a tensor's rows. Its calls are collective over the ranks of this node that need the same: of the embedding (always
  // read whole) the first stages, and the last ones if their head is tied to it; of others the ranks of the same stage and
  // tensor index in other replicas. Errors name the tensor.
  FetchBytes fetch_of(const std::string& tensor);

  // This rank can't go on: every call of the node's others throws Error with this code and text from now on.
  void fail(ExitCode code, const std::string& what);

  uint64_t bytes_read() const { return bytes_read_; }  // from files, by this rank

 private:
  struct Group {
    int me = 0, size = 1;
    uint64_t* arrivals = nullptr;  // in the shared memory: of all calls so far
    std::byte* buffers = nullptr;  // [2, kBufferBytes], there too
    uint64_t n_calls = 0;
  };
  struct Failure;

  const std::byte* fetch(Group& group, const std::string& tensor, const File& file, uint64_t offset, size_t n);
  void meet(Group& group);
  void read(const std::string& tensor, const File& file, uint64_t offset, std::span<std::byte> out);

  std::shared_ptr<std::byte> memory_;
  Failure* failure_ = nullptr;
  Group twins_, embedding_;
  std::vector<std::byte> own_;
  uint64_t bytes_read_ = 0;
};

}  // namespace lockstep
