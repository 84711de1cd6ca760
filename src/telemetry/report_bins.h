// What a plot of a million rows is made of: sums over equal slices of time, classes of sizes, quantiles. Not for reading or
// drawing. Values that are no numbers never get in: callers keep them out (report_data).
//   TimeSums sums(0, 10, 5); sums.spread(1, 5, 8);   sums.values() == {2, 4, 2, 0, 0}: two seconds a slice
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

// Slices of [begin_s, end_s). What happened outside is left out.
class TimeSums {
 public:
  TimeSums() = default;
  TimeSums(double begin_s, double end_s, int n_slices);

  // `amount`, spread evenly over [from_s, to_s]; all of it into one slice where the two are equal.
  void spread(double from_s, double to_s, double amount);

  std::vector<double> values() const;  // [n_slices] the amount in each
  double width_s() const { return width_s_; }
  int slice_of(double time_s) const;  // nearest one
  int n_slices() const { return static_cast<int>(parts_.size()); }

 private:
  double begin_s_ = 0, end_s_ = 0, width_s_ = 1;
  std::vector<double> parts_;    // [n_slices] what fell on the ends of an interval
  std::vector<double> changes_;  // [n_slices + 1] of the amount a whole slice gets
};

// Classes of whole numbers: 1 to 16 each alone, then four to a doubling: 17-19, 20-22, 23-26, 27-32, 33-38, ...
int size_class(int64_t n);          // n >= 1
int64_t first_of_class(int index);  // the smallest n in it

// The q-quantile (0 to 1) by linear interpolation between neighbours in order, as numpy.quantile has it. Reorders `values`,
// which are not empty.
double quantile(std::vector<float>& values, double q);

}  // namespace lockstep
