// What a rank's GPU memory goes to: each term as it was planned and as the driver's free memory shows it, in one line of the
// log.
//   MemoryLog memory(free_bytes);   ... the weights are loaded ...   memory.add("weights", planned);   log_info(memory.line());
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace lockstep {

class MemoryLog {
 public:
  // free_bytes: what is free now; empty where nothing is measured, on CPUs.
  explicit MemoryLog(std::function<uint64_t()> free_bytes);

  // What was taken since the last call, of which `planned` bytes were meant to be.
  void add(const std::string& name, uint64_t planned);

  std::string line() const;  // "weights 15.0 GiB planned, 15.2 GiB taken; ...; 13.1 GiB free", or ""

 private:
  struct Term {
    std::string name;
    uint64_t planned;
    int64_t taken;  // below 0 where others gave memory back meanwhile
  };
  std::function<uint64_t()> free_bytes_;
  uint64_t free_ = 0;
  std::vector<Term> terms_;
};

}  // namespace lockstep
