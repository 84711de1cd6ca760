// Start-up is collective: what one rank can't do, no rank does, and it is said once. Every step of it runs inside `together`.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/communicator.h"

namespace lockstep {

// An error that every rank knows of: rank 0 prints it, all ranks leave in order.
struct AgreedError {
  ExitCode code;
  std::string message;
};

// Collective over world. Runs `work` on this rank, then all ranks compare: if it failed anywhere, every rank throws AgreedError
// with the message of the lowest failing rank, which is named if not all failed.
void together(Communicator& world, const std::string& host, const std::function<void()>& work);

// Collective over world. Named values (digests of files, the program itself) that must be equal on every rank, or AgreedError
// says which rank on which host has another: node-local copies go stale.
void agree_on(Communicator& world, const std::string& host, const std::vector<std::pair<std::string, std::string>>& facts);

// Collective over world. The same bytes for all, from rank 0.
std::string from_rank_0(Communicator& world, const std::string& text);

}  // namespace lockstep
