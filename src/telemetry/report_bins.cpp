#include "telemetry/report_bins.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

namespace lockstep {

TimeSums::TimeSums(double begin_s, double end_s, int n_slices)
    : begin_s_(begin_s),
      end_s_(end_s),
      width_s_((end_s - begin_s) / n_slices),
      parts_(static_cast<size_t>(n_slices)),
      changes_(static_cast<size_t>(n_slices) + 1) {}

int TimeSums::slice_of(double time_s) const {
  const double slice = (time_s - begin_s_) / width_s_;
  return slice > 0 ? static_cast<int>(std::min(slice, static_cast<double>(parts_.size() - 1))) : 0;
}

void TimeSums::spread(double from_s, double to_s, double amount) {
  if (to_s < begin_s_ || from_s > end_s_ || amount == 0) return;
  if (to_s <= from_s) {
    parts_[slice_of(from_s)] += amount;
    return;
  }
  const double a_second = amount / (to_s - from_s);
  from_s = std::max(from_s, begin_s_);
  to_s = std::min(to_s, end_s_);
  const int first = slice_of(from_s), last = slice_of(to_s);
  if (first == last) {
    parts_[first] += a_second * (to_s - from_s);
    return;
  }
  parts_[first] += a_second * (begin_s_ + (first + 1) * width_s_ - from_s);
  parts_[last] += a_second * (to_s - (begin_s_ + last * width_s_));
  changes_[first + 1] += a_second * width_s_;
  changes_[last] -= a_second * width_s_;
}

std::vector<double> TimeSums::values() const {
  std::vector<double> sums(parts_);
  double whole = 0;
  for (size_t i = 0; i < sums.size(); ++i) {
    whole += changes_[i];
    sums[i] = std::max(0.0, sums[i] + whole);  // adding and taking away may leave a little less than nothing
  }
  return sums;
}

namespace {

constexpr int kAlone = 16;  // 1..16

}  // namespace

// From 17 on the doublings (16, 32], (32, 64], ... have four classes each, at 2^(1/4), 2^(2/4), 2^(3/4).
int size_class(int64_t n) {
  if (n <= kAlone) return static_cast<int>(n) - 1;
  int index = kAlone + 4 * (std::bit_width(static_cast<uint64_t>(n - 1)) - 5);
  while (first_of_class(index + 1) <= n) ++index;
  return index;
}

int64_t first_of_class(int index) {
  if (index < kAlone) return index + 1;
  const int quarters = index - kAlone;
  return static_cast<int64_t>(std::floor(16 * std::exp2(quarters / 4.0))) + 1;
}

double quantile(std::vector<float>& values, double q) {
  const double place = q * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(place);
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(below), values.end());
  const double low = values[below];
  if (below + 1 >= values.size()) return low;
  const double high = *std::min_element(values.begin() + static_cast<std::ptrdiff_t>(below) + 1, values.end());
  return low + (high - low) * (place - static_cast<double>(below));
}

}  // namespace lockstep
