// What is measured while running: plain records, written raw as the run goes and turned into timings.h5 at its end.
// None of it reaches completions.jsonl, which holds no clock.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace lockstep {

struct RequestTiming {  // one finished input line
  int64_t line = 0;     // of the input, 1-based
  std::string custom_id;
  int32_t attempt = 0;  // epoch of the run that finished it, from 1
  int32_t replica = 0;
  double admitted_s = 0, first_token_s = 0, done_s = 0;  // since the start of its attempt; NaN: never came to that
  int32_t n_prompt = 0, n_cached = 0, n_generated = 0;   // tokens, summed over the line's choices
  std::string finish_reason;                             // of its first choice: "stop", "length", or "error"
};

struct StepTiming {  // one step of one rank
  int64_t step = 0;
  double start_s = 0, duration_s = 0;
  double comm_s = 0;  // in collectives, sends and receives: bytes on their way, waiting for peers, and wait_s
  double wait_s = 0;  // the part of comm_s that was for the root's events
  int32_t n_prefill_tokens = 0, n_decode_tokens = 0, n_seqs = 0;
  int64_t n_pages = 0;                                         // KV pages in use
  double device_s = std::numeric_limits<double>::quiet_NaN();  // of a GPU, from the step's first kernel to its last; NaN: none

  double compute_s() const { return duration_s - comm_s; }  // and scheduling
};

struct RankPlace {  // what a rank was in its attempt; -1: nobody said
  int32_t replica = -1, stage = -1, tensor_rank = -1;
};

// What a GPU says of itself at one moment. NaN, or -1 for integers: it doesn't say.
struct GpuReading {
  double power_w = kUnknown;
  double temperature_c = kUnknown;
  double sm_clock_mhz = kUnknown, memory_clock_mhz = kUnknown;
  double utilisation_percent = kUnknown;         // of the time in which a kernel ran
  double memory_utilisation_percent = kUnknown;  // of the time in which memory was read or written
  double energy_j = kUnknown;                    // of a GPU: its counter; of a sample: since the first one
  int64_t memory_used_bytes = -1;                // by all processes, and what the driver keeps
  int64_t throttle_reasons = -1;                 // bit mask; NVML, nvmlClocksEventReasons, names the bits

  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
};

struct GpuSample {
  double time_s = 0;  // since the start of its attempt
  GpuReading reading;
};

struct PhaseEnergy {
  std::string phase;
  double joules = 0;
};

struct PhaseTiming {  // "open", "load", "run", "merge", ...
  std::string name;
  double seconds = 0;
};

}  // namespace lockstep
