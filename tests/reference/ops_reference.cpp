#include "tests/reference/ops_reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/philox.h"

namespace lockstep::reference {

Vector linear(const Vector& x, const Vector& w, const Vector& bias, int64_t n_rows, int64_t n_out, int64_t k, Vector* sum_abs) {
  Vector out(n_rows * n_out);
  sum_abs->assign(out.size(), 0);
  for (int64_t m = 0; m < n_rows; ++m) {
    for (int64_t n = 0; n < n_out; ++n) {
      double sum = bias.empty() ? 0 : bias[n], abs = std::abs(sum);
      for (int64_t i = 0; i < k; ++i) {
        sum += x[m * k + i] * w[n * k + i];
        abs += std::abs(x[m * k + i] * w[n * k + i]);
      }
      out[m * n_out + n] = sum;
      (*sum_abs)[m * n_out + n] = abs;
    }
  }
  return out;
}

Vector rms_norm(const Vector& x, const Vector& weight, int64_t n_rows, int64_t n_cols, double eps) {
  Vector out(x.size());
  for (int64_t m = 0; m < n_rows; ++m) {
    double squares = 0;
    for (int64_t i = 0; i < n_cols; ++i) squares += x[m * n_cols + i] * x[m * n_cols + i];
    const double rms = std::sqrt(squares / static_cast<double>(n_cols) + eps);
    for (int64_t i = 0; i < n_cols; ++i) out[m * n_cols + i] = x[m * n_cols + i] / rms * weight[i];
  }
  return out;
}

Vector silu_mul(const Vector& gate_up, int64_t n_rows, int64_t n_cols) {
  Vector out(n_rows * n_cols);
  for (int64_t m = 0; m < n_rows; ++m) {
    for (int64_t i = 0; i < n_cols; ++i) {
      const double gate = gate_up[m * 2 * n_cols + i], up = gate_up[m * 2 * n_cols + n_cols + i];
      out[m * n_cols + i] = gate / (1 + std::exp(-gate)) * up;
    }
  }
  return out;
}

Vector rotate(const Vector& head, const Vector& cosines, const Vector& sines) {
  const size_t half = head.size() / 2;
  Vector out(head.size());
  for (size_t i = 0; i < half; ++i) {
    out[i] = head[i] * cosines[i] - head[i + half] * sines[i];
    out[i + half] = head[i + half] * cosines[i] + head[i] * sines[i];
  }
  return out;
}

Vector attend(const Vector& q, const Vector& keys, const Vector& values, int64_t first, int64_t last, double scale,
              Vector* sum_abs) {
  const auto head_dim = static_cast<int64_t>(q.size());
  Vector score;
  for (int64_t j = first; j <= last; ++j) {
    double dot = 0;
    for (int64_t d = 0; d < head_dim; ++d) dot += q[d] * keys[j * head_dim + d];
    score.push_back(dot * scale);
  }
  const double max = *std::max_element(score.begin(), score.end());
  double total = 0;
  for (double& s : score) total += s = std::exp(s - max);
  Vector out(q.size(), 0.0);
  sum_abs->assign(q.size(), 0.0);
  for (int64_t j = first; j <= last; ++j) {
    for (int64_t d = 0; d < head_dim; ++d) {
      out[d] += score[j - first] / total * values[j * head_dim + d];
      (*sum_abs)[d] += score[j - first] / total * std::abs(values[j * head_dim + d]);
    }
  }
  return out;
}

Vector sampling_probabilities(const Vector& logits, const SamplingRule& rule) {
  const double max = *std::max_element(logits.begin(), logits.end());
  Vector p(logits.size());
  for (size_t i = 0; i < p.size(); ++i) p[i] = std::exp((logits[i] - max) / rule.temperature);
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  size_t kept = order.size();
  if (rule.top_k > 0) kept = std::min(kept, static_cast<size_t>(rule.top_k));
  if (rule.top_p < 1) {
    double total = 0, mass = 0;
    for (size_t i = 0; i < kept; ++i) total += p[order[i]];
    size_t n = 0;
    while (n < kept && (n == 0 || mass < rule.top_p * total)) mass += p[order[n++]];
    kept = n;
  }
  Vector out(p.size(), 0.0);
  double total = 0;
  for (size_t i = 0; i < kept; ++i) {
    if (p[order[i]] >= rule.min_p * p[order[0]]) total += out[order[i]] = p[order[i]];
  }
  for (double& x : out) x /= total;
  return out;
}

Vector log_softmax(const Vector& logits) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double l : logits) sum += std::exp(l - max);
  Vector out;
  for (const double l : logits) out.push_back(l - max - std::log(sum));
  return out;
}

Draw draw(const Vector& logits, const SamplingRule& rule, uint64_t key, uint32_t position) {
  const auto kept = [&](double factor) {
    SamplingRule other = rule;
    if (rule.top_p < 1) other.top_p *= factor;
    other.min_p *= factor;
    std::vector<bool> tokens;
    for (const double p : sampling_probabilities(logits, other)) tokens.push_back(p > 0);
    return tokens;
  };
  const auto tokens = kept(1);
  const double max = *std::max_element(logits.begin(), logits.end());
  double best = -std::numeric_limits<double>::infinity(), second = best;
  Draw out;
  for (size_t t = 0; t < logits.size(); ++t) {
    if (!tokens[t]) continue;
    const auto words = philox4x32(key, {position, static_cast<uint32_t>(t / 4), 0x5A4D, 0});
    const double value = (logits[t] - max) / rule.temperature - std::log(-std::log((words[t % 4] + 0.5) * 0x1p-32));
    if (value > best) {
      second = best, best = value;
      out.token = static_cast<int64_t>(t);
    } else {
      second = std::max(second, value);
    }
  }
  const bool filtered = rule.top_p < 1 || rule.min_p > 0;
  out.margin = filtered && (kept(1 - 1e-5) != tokens || kept(1 + 1e-5) != tokens) ? 0 : best - second;
  return out;
}

}  // namespace lockstep::reference
