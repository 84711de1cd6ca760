#include "base/det_math.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace lockstep {
namespace {

// ln 2 in two parts; the first has 21 trailing zero bits, so that a product with an exponent is exact.
constexpr double kLn2High = 0x1.62e42fee00000p-1, kLn2Low = 0x1.a39ef35793c76p-33;
constexpr double kPi2High = 0x1.921fb54442d18p+0, kPi2Low = 0x1.1a62633145c07p-54;  // pi / 2
constexpr double kRound = 0x1.8p+52;  // adding and subtracting it rounds to the nearest integer, for |x| < 2^51
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();

constexpr double power_of_two(int64_t n) { return std::bit_cast<double>(static_cast<uint64_t>(n + 1023) << 52); }

// c[0] + c[1] x + ... by Horner's rule.
template <int N>
double polynomial(const double (&c)[N], double x) {
  double sum = c[N - 1];
  for (int i = N - 2; i >= 0; --i) sum = std::fma(sum, x, c[i]);
  return sum;
}

}  // namespace

double det_exp(double x) {
  if (x != x) return kNaN;
  if (x < -708.0) return 0.0;
  if (x > 709.7) return kInfinity;
  static constexpr double kInverseFactorials[] = {// 1 / (i + 2)!
                                                  1.0 / 2,       1.0 / 6,        1.0 / 24,        1.0 / 120,
                                                  1.0 / 720,     1.0 / 5040,     1.0 / 40320,     1.0 / 362880,
                                                  1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800};
  const double n = std::fma(x, 0x1.71547652b82fep+0, kRound) - kRound;  // x / ln 2
  double r = std::fma(n, -kLn2High, x);
  r = std::fma(n, -kLn2Low, r);  // |r| <= ln 2 / 2
  const double e = 1.0 + std::fma(polynomial(kInverseFactorials, r), r * r, r);
  const auto i = static_cast<int64_t>(n);  // -1021 .. 1024
  return e * power_of_two(i / 2) * power_of_two(i - i / 2);
}

double det_log(double x) {
  if (!(x >= 0)) return kNaN;
  if (x == 0) return -kInfinity;
  if (x == kInfinity) return kInfinity;
  int64_t shift = 0;
  if (x < std::numeric_limits<double>::min()) x *= 0x1p54, shift = -54;
  const auto bits = std::bit_cast<uint64_t>(x);
  double m = std::bit_cast<double>((bits & 0xFFFFFFFFFFFFFull) | 0x3FF0000000000000ull);
  auto n = static_cast<double>(static_cast<int64_t>(bits >> 52) - 1023 + shift);
  if (m > 0x1.6a09e667f3bcdp+0) m *= 0.5, n += 1.0;  // sqrt(1/2) < m <= sqrt(2)
  // log(1 + f) = 2 atanh(s) with s = f / (2 + f) = f - s f, |s| < 0.172; the form f - s (f - ...) keeps the digits of small f.
  static constexpr double kOdd[] = {1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9,  1.0 / 11, 1.0 / 13,
                                    1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21, 1.0 / 23, 1.0 / 25};
  const double f = m - 1.0;
  const double s = f / (2.0 + f), s2 = s * s;
  const double rest = 2.0 * s2 * polynomial(kOdd, s2);  // 2 atanh(s) = 2 s + s rest
  const double low = std::fma(n, kLn2Low, -s * (f - rest));
  return std::fma(n, kLn2High, f + low);
}

double det_pow(double x, double y) { return det_exp(y * det_log(x)); }

void det_sin_cos(double x, double* sin, double* cos) {
  if (!(x - x == 0)) {
    *sin = *cos = kNaN;
    return;
  }
  static constexpr double kSin[] = {-1.0 / 6,        1.0 / 120,        -1.0 / 5040,          1.0 / 362880,
                                    -1.0 / 39916800, 1.0 / 6227020800, -1.0 / 1307674368000, 1.0 / 355687428096000};
  static constexpr double kCos[] = {1.0 / 24,        -1.0 / 720,         1.0 / 40320,          -1.0 / 3628800,
                                    1.0 / 479001600, -1.0 / 87178291200, 1.0 / 20922789888000, -1.0 / 6402373705728000};
  const double n = std::fma(x, 0x1.45f306dc9c883p-1, kRound) - kRound;
  const double r = std::fma(n, -kPi2Low, std::fma(n, -kPi2High, x));  // |r| <= pi / 4
  const double r2 = r * r;
  const double s = std::fma(polynomial(kSin, r2), r2 * r, r);
  const double c = std::fma(polynomial(kCos, r2), r2 * r2, std::fma(-0.5, r2, 1.0));
  const auto quarter = std::bit_cast<uint64_t>(n + kRound) & 3;  // turns, modulo 4
  *sin = quarter == 0 ? s : quarter == 1 ? c : quarter == 2 ? -s : -c;
  *cos = quarter == 0 ? c : quarter == 1 ? -s : quarter == 2 ? -c : s;
}

}  // namespace lockstep
