#include "commands/memory_log.h"

#include <cstdlib>

#include "base/error.h"
#include "base/units.h"

namespace lockstep {

MemoryLog::MemoryLog(std::function<uint64_t()> free_bytes) : free_bytes_(std::move(free_bytes)) {
  if (free_bytes_) free_ = free_bytes_();
}

void MemoryLog::add(const std::string& name, uint64_t planned) {
  if (!free_bytes_) return;
  const uint64_t now = free_bytes_();
  terms_.push_back({name, planned, static_cast<int64_t>(free_) - static_cast<int64_t>(now)});
  free_ = now;
}

std::string MemoryLog::line() const {
  if (terms_.empty()) return "";
  std::string text;
  for (const Term& term : terms_)
    text += concat(term.name, " ", format_bytes(term.planned), " planned, ", term.taken < 0 ? "-" : "",
                   format_bytes(static_cast<uint64_t>(std::abs(term.taken))), " taken; ");
  return concat(text, format_bytes(free_), " free");
}

}  // namespace lockstep
