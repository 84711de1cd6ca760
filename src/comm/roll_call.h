// Whether all ranks of a group are there, before and after something that would wait for them without a word (NCCL's start):
// each answers, and who doesn't in time is named. Uses the communicator's control messages, so nothing else may meanwhile.
//   RollCall roll(*comm, names);  roll.call("before joining", 120);  join();  roll.call("joining", 120);
#pragma once

#include <string>
#include <vector>

#include "comm/communicator.h"

namespace lockstep {

class RollCall {
 public:
  // names: [size] what a person looks for, "r5 on node03, GPU 1".
  RollCall(Communicator& comm, std::vector<std::string> names);

  // Collective. Answers, and waits for the others' answers to this call. Error (communication) with `what` and the names of
  // those that haven't answered after limit_s seconds.
  void call(const std::string& what, double limit_s);

  // Those that have not answered the n-th call (from 1) by now, in words; empty: all have.
  std::string missing(int n);

 private:
  Communicator& comm_;
  std::vector<std::string> names_;
  std::vector<int> n_answers_;  // [size] by rank; a rank may be one call ahead of this one
};

}  // namespace lockstep
