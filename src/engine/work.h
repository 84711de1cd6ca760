// Who works on which lines: rank 0 hands out ranges, replicas ask for more while they still have work. Each replica has its own
// share of the lines (work_order.h), in which prompts that begin alike meet in one prefix cache, and takes half of the
// costliest share when its own is done; ranges shrink towards the end, so that the replicas end together. No result depends on
// any of it. Messages over the world communicator, polled once a step and, by
// rank 0, while its device computes; nobody waits for an answer.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "journal/input_file.h"

namespace lockstep {

struct WorkTotals {
  int64_t n_done = 0, n_failed = 0;  // lines finished (failed ones included), of which failed
  int64_t n_prompt_tokens = 0, n_cached_tokens = 0,
          n_generated_tokens = 0;  // cached: of the prompts, found in the prefix cache
  WorkTotals& operator+=(const WorkTotals& o);
};

// On world rank 0.
class WorkServer {
 public:
  // The roots of the replicas (world ranks) take those of `lines`, which outlive this, that `to_run` names.
  WorkServer(std::span<const InputLine> lines, std::vector<uint32_t> to_run, std::vector<int> roots);

  static constexpr size_t kMostLines = 32;  // of a range: 2 KiB, sent at once whether or not the other side still listens
  std::vector<InputLine> next_range(int replica, size_t most = kMostLines);  // empty: no more
  void poll(Communicator& world);                                            // answers what has arrived
  bool others_have_asked(int rank) const;  // for lines: all roots but this rank, at least once
  void stop(Communicator& world);          // tells every root to stop
  bool finished() const;                   // nobody needs an answer any more
  bool stopped() const { return stopped_; }
  WorkTotals totals() const;  // as last reported by the replicas

  std::vector<WorkTotals> reports;  // [n_replicas]

 private:
  struct Stretch {
    size_t begin = 0, end = 0;  // of order_
    uint64_t cost = 0;
  };
  void take_half_of_the_costliest(Stretch& empty);

  std::span<const InputLine> lines_;
  std::vector<uint32_t> order_;     // indices of lines_
  std::vector<Stretch> stretches_;  // [n_replicas]  still to be given out
  std::vector<int> roots_;          // [n_replicas]
  std::vector<bool> asked_;         // [n_replicas]  for lines, by a message
  std::vector<bool> told_;          // [n_replicas]  that there is no more
  bool stopped_ = false;
};

// From any rank but 0, to rank 0: a stop signal came here, all shall stop.
void ask_to_stop(Communicator& world);

// On each replica's root. `server` where the root is world rank 0 itself, else null.
class WorkClient {
 public:
  WorkClient(Communicator& world, WorkServer* server, int replica) : world_(world), server_(server), replica_(replica) {}

  void poll(size_t n_lines);        // asks for so many, unless they are here or on their way, and receives; never waits
  std::optional<InputLine> take();  // the next line, if one is here
  bool drained() const { return no_more_ && lines_.empty(); }
  void announce_stop();  // this replica stops on a signal of its own: the others shall too
  bool stop_received() const { return stop_ || (server_ != nullptr && server_->stopped()); }
  void report(const WorkTotals& totals);

 private:
  void receive(std::vector<InputLine> range);

  Communicator& world_;
  WorkServer* server_;
  int replica_;
  std::deque<InputLine> lines_;
  std::deque<size_t> asked_;  // lines of the ranges on their way, at most
  size_t n_asked_ = 0;        // their sum
  bool no_more_ = false, stop_ = false;
};

}  // namespace lockstep
