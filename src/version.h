// What this program calls itself, and which of its versions give the same results.
#pragma once

namespace lockstep {

inline constexpr const char* kVersion = LOCKSTEP_VERSION;

// Counts up when the same work may come out with other bytes: a run is only resumed by a program of the same results version.
inline constexpr const char* kResultsVersion = "1";

}  // namespace lockstep
