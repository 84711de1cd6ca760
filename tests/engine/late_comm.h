// A communicator whose begun gathers bring nothing before they are ended, and until then leave the other ranks' columns as NaN:
// what a GPU may do whose copies go on beside its products.
#pragma once

#include <cstring>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/timed_comm.h"

namespace lockstep {

class LateComm final : public TimedComm {  // for all other calls, which it passes on
 public:
  explicit LateComm(std::unique_ptr<Communicator> inner) : TimedComm(std::move(inner), &seconds_) {}

  int64_t rows_beside() const override { return 1; }
  void begin_gather(TensorView matrix, Range rows, std::span<const Range> ranges) override {
    const TensorView part = matrix.part(rows);
    for (size_t r = 0; r < ranges.size(); ++r)
      for (int64_t row = 0; row < part.rows && static_cast<int>(r) != rank(); ++row)
        std::memset(
            part.columns(ranges[r]).row<std::byte>(0) + row * part.row_stride * static_cast<int64_t>(size_of(part.dtype)), 0xFF,
            static_cast<size_t>(ranges[r].size()) * size_of(part.dtype));
    begun_.push_back({part, {ranges.begin(), ranges.end()}});
  }
  void end_gather() override {
    check(!begun_.empty(), "no gather is begun");
    all_gather(begun_.front().matrix, begun_.front().ranges, {});
    begun_.pop_front();
  }

 private:
  struct Begun {
    TensorView matrix;
    std::vector<Range> ranges;
  };
  double seconds_ = 0;
  std::deque<Begun> begun_;
};

}  // namespace lockstep
