// Names for the integers that travel, so that signatures say what they take.
#pragma once

#include <cstdint>

namespace lockstep {

using TokenId = int32_t;
using PageId = int32_t;
using RequestId = int64_t;  // dense within a replica, in order of admission, never reused

}  // namespace lockstep
