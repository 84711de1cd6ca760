#include <algorithm>

#include "base/bytes.h"
#include "comm/communicator.h"

namespace lockstep {

int64_t smallest(Communicator& comm, int64_t mine) {
  ByteWriter w;
  w.put(mine);
  for (const auto& bytes : comm.exchange(w.bytes())) mine = std::min(mine, ByteReader(bytes).get<int64_t>());
  return mine;
}

}  // namespace lockstep
