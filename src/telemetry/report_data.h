// The numbers behind report.html: a run's timings reduced to what its plots show, a few thousand numbers whatever the size of
// the run. Not for drawing (report.js) and not for text (report_page).
//   ReportData data = reduce(read_timings_h5(path));
//
// Every attempt has a clock of its own, so the time axis has the attempts one after the other, without the time between them.
// Ranks of one replica run the same steps, so a replica's tokens, sequences and pages are those of its lowest rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "telemetry/raw_timings.h"

namespace lockstep {

struct ReportData {
  struct Attempt {
    int32_t number = 0;
    double begin_s = 0, end_s = 0;  // on the joined axis
  };

  struct Totals {
    int64_t n_requests = 0, n_failed = 0;
    double prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;  // of /requests
    double prefill_tokens = 0, decode_tokens = 0;                       // of the replicas' steps
    int64_t n_steps = 0;                                                // of all replicas
    int64_t n_ranks = 0, n_replicas = 0;
    int64_t n_gpus = 0;         // ranks whose GPU was measured
    int64_t n_left_out = 0;     // rows with impossible times
    double first_token_s = -1;  // earliest of the first attempt; -1: there is none
    double busy_s = 0;          // from the first to the end of the last step, over all attempts
  };

  struct OverTime {  // [n_slices]
    double slice_s = 0;
    std::vector<double> in_tokens_per_s, out_tokens_per_s;
    std::vector<double> pages_mean, pages_max;          // of the replicas that ran then; -1: none did
    std::vector<double> sequences_mean, sequences_max;  // likewise
  };

  struct StepClass {  // steps of one kind with about as many tokens
    int kind = 0;     // 0 prefill, 1 decode, 2 mixed
    int64_t tokens_low = 0, tokens_high = 0;
    int64_t n = 0;
    double p10_s = 0, p50_s = 0, p90_s = 0, max_s = 0;
  };

  struct Density {                      // requests by prompt length and seconds
    std::vector<int64_t> length_edges;  // [n_lengths + 1] tokens: class i holds length_edges[i] to length_edges[i + 1] - 1
    double low_s = 0, high_s = 0;       // classes of equal ratio between them
    int n_seconds = 0;
    std::vector<int64_t> counts;   // [n_lengths * n_seconds]
    std::vector<double> median_s;  // [n_lengths]; -1: no request
    std::vector<double> p90_s;     // likewise
  };

  struct Phase {
    std::string name;
    double begin_s = 0, end_s = 0;
  };
  struct Rank {
    int rank = 0;
    RankPlace place;  // in its last attempt
    std::vector<Phase> phases;
    std::vector<double> compute, communication, waiting;  // [n_slices] share of the slice, 0 to 1
    double compute_s = 0, communication_s = 0, waiting_s = 0;
  };

  struct Gpu {  // of a rank
    int rank = 0;
    std::vector<double> power_w, temperature_c, sm_clock_mhz;  // [n_slices] means; -1: unknown
  };

  struct Ending {  // one of the last requests
    std::string custom_id, finish_reason;
    int64_t line = 0;
    int32_t replica = 0, n_prompt = 0, n_generated = 0;
    double admitted_s = 0, first_token_s = -1, done_s = 0;
  };
  struct Tail {
    double begin_s = 0, end_s = 0;
    struct Active {
      int32_t replica = 0;
      std::vector<double> sequences;  // [n_tail_slices]
    };
    std::vector<Active> active;  // of the kMaxReplicas replicas that had most to do
    std::vector<Ending> last;    // in order of their ends
  };

  double end_s = 0;
  std::vector<Attempt> attempts;
  Totals totals;
  OverTime over_time;
  std::vector<StepClass> step_classes;
  Density first_token, whole;  // seconds from admission to the first token, and to the last
  double rank_slice_s = 0;
  std::vector<Rank> ranks;  // kMaxRanks at most: evenly chosen, with the one that computed most and the one that did least
  std::vector<Gpu> gpus;    // in slices of over_time; kMaxGpus at most: evenly chosen, with those of most and of least power
  Tail tail;

  static constexpr int kTimeSlices = 240, kTailSlices = 160, kMaxRanks = 128, kMaxReplicas = 8, kMaxGpus = 8,
                       kLastRequests = 20;
};

ReportData reduce(const Timings& timings);

// For report.js; numbers to four digits. Valid inside <script>: no '<' in it.
std::string to_json(const ReportData& data);

}  // namespace lockstep
