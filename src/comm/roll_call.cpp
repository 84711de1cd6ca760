#include "comm/roll_call.h"

#include "base/error.h"
#include "comm/patience.h"

namespace lockstep {

RollCall::RollCall(Communicator& comm, std::vector<std::string> names)
    : comm_(comm), names_(std::move(names)), n_answers_(static_cast<size_t>(comm.size())) {
  check(static_cast<int>(names_.size()) == comm_.size(), names_.size(), " names for ", comm_.size(), " ranks");
}

void RollCall::call(const std::string& what, double limit_s) {
  const int n = ++n_answers_[static_cast<size_t>(comm_.rank())];
  for (int peer = 0; peer < comm_.size(); ++peer)
    if (peer != comm_.rank()) comm_.post({}, peer);
  std::string names;
  for (Patience patience(limit_s); !(names = missing(n)).empty();)
    if (!patience.wait())
      fail(ExitCode::communication, what, ": ", names_[static_cast<size_t>(comm_.rank())], " has waited ", limit_s, " s for ",
           names);
}

std::string RollCall::missing(int n) {
  while (const auto answer = comm_.poll()) ++n_answers_[static_cast<size_t>(answer->from)];
  std::string names;
  for (size_t r = 0; r < names_.size(); ++r)
    if (n_answers_[r] < n) names += (names.empty() ? "" : "; ") + names_[r];
  return names;
}

}  // namespace lockstep
