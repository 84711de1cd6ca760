// Elementary functions in double precision with the same bits on every machine: only + - * / sqrt and explicit fma (each
// rounded once by IEEE 754), no libm beyond std::fma, no table. For the rope table and random draws, where libm's last bit
// would change a token. Not for hot loops over activations: those have vector forms of their own (ops/cpu).
//   double s, c; det_sin_cos(position * det_pow(theta, -2.0 * i / head_dim), &s, &c);
// Errors, over the ranges tested: exp, log, sin, cos under 1e-15; pow under 1e-15 (1 + |y log x|).
#pragma once

namespace lockstep {

double det_exp(double x);            // relative; 0 below -708, infinity above 709.7, NaN of NaN
double det_log(double x);            // relative; x > 0; -infinity of 0, NaN of negative numbers
double det_pow(double x, double y);  // relative; x > 0, as exp(y log x)

// Absolute, for |x| < 1e7 (beyond, the argument reduction loses digits); NaN of NaN and infinities.
void det_sin_cos(double x, double* sin, double* cos);

}  // namespace lockstep
