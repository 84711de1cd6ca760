// The decoder's arithmetic written down naively, in double precision and from the definitions alone: what Ops are tested
// against. Shares no code with src/ops. Matrices are dense row-major vectors; `sum_abs` outputs give the scale of rounding
// errors.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::reference {

using Vector = std::vector<double>;

// out[m][n] = sum over k of x[m][k] w[n][k], + bias[n] where bias isn't empty. sum_abs: the same of absolute values.
Vector linear(const Vector& x, const Vector& w, const Vector& bias, int64_t n_rows, int64_t n_out, int64_t k, Vector* sum_abs);

Vector rms_norm(const Vector& x, const Vector& weight, int64_t n_rows, int64_t n_cols, double eps);
Vector silu_mul(const Vector& gate_up, int64_t n_rows, int64_t n_cols);  // gate_up [n_rows][2 n_cols]

// head [head_dim] rotated in halves by cosines and sines [head_dim / 2] each.
Vector rotate(const Vector& head, const Vector& cosines, const Vector& sines);

// One query over keys and values [n_positions][head_dim], positions first .. last. sum_abs[d]: sum of p |v| / sum of p.
Vector attend(const Vector& q, const Vector& keys, const Vector& values, int64_t first, int64_t last, double scale,
              Vector* sum_abs);

struct SamplingRule {
  double temperature = 1, top_p = 1, min_p = 0;
  int64_t top_k = 0;
};
// The probability of each token by the rule; temperature > 0, at least one logit above -infinity.
Vector sampling_probabilities(const Vector& logits, const SamplingRule& rule);
Vector log_softmax(const Vector& logits);

struct Draw {
  int64_t token = 0;
  double margin = 0;  // by which it leads; 0 where a change of top_p or min_p by 1e-5 keeps other tokens
};
// Of the tokens the rule keeps, the one with the largest (logit - max) / temperature - log(-log u): u = (word + 1/2) / 2^32,
// word token mod 4 of philox4x32(key; position, token / 4, 0x5A4D, 0).
Draw draw(const Vector& logits, const SamplingRule& rule, uint64_t key, uint32_t position);

}  // namespace lockstep::reference
