// What a replica's root tells its ranks once a step: all that the replicated scheduler may know of the world.
// (state, events) -> decision: no clock, no rank, no memory query reaches the scheduler by another way.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "records/request.h"

namespace lockstep {

struct StepEvents {
  struct Token {
    RequestId request = 0;
    TokenId token = 0;
    bool finished = false;  // by EOS, stop text, length, or a fault: the sequence leaves after this token
  };
  int64_t step = 0;
  std::vector<Request> admitted;  // in order of their ids
  std::vector<Token> sampled;     // of this step, in order of rows; tokens of sequences already finished are left out
  bool drained = false;           // no request will be admitted any more
  bool stop = false;              // a stop signal: leave at once, what is unfinished is run again later
};

void put(ByteWriter& w, const StepEvents& events);
StepEvents get_step_events(ByteReader& r);

}  // namespace lockstep
