// One block a row. Greedy reads the row once (4 bytes a token): memory decides. A draw reads it once more, top_k and top_p twice more each,
// from L2 mostly.
#include "kernels/sample.h"

#include "kernels/sample_kernels.cuh"

namespace lockstep::kernels {

// ---- launchers ----

cudaError_t sample(const float* logits, int64_t stride, const float* adjusted, int64_t adjusted_stride, int n_rows, int vocab,
                   const DrawRule* rules, int32_t* slots, uint32_t* counts, DrawnRow* out, TopEntry* top, cudaStream_t stream) {
  if (n_rows == 0) return cudaSuccess;
  sample_rows<<<n_rows, kThreads, 0, stream>>>(logits, stride, adjusted, adjusted_stride, vocab, rules, slots, counts, out, top);
  return cudaGetLastError();
}

cudaError_t score(const float* logits, int64_t stride, int n_rows, int vocab, const ScoreRule* rules, DrawnRow* out, TopEntry* top,
                  cudaStream_t stream) {
  if (n_rows == 0) return cudaSuccess;
  score_rows<<<n_rows, kThreads, 0, stream>>>(logits, stride, vocab, rules, out, top);
  return cudaGetLastError();
}

cudaError_t adjust(float* adjusted, const float* logits, int64_t stride, int vocab, const AdjustRule* rules, int n_rules, const Bias* biases,
                   const int32_t* ends, const uint32_t* counts, cudaStream_t stream) {
  if (n_rules == 0) return cudaSuccess;
  adjust_rows<<<n_rules, kThreads, 0, stream>>>(adjusted, logits, stride, vocab, rules, biases, ends, counts);
  return cudaGetLastError();
}

cudaError_t count_tokens(uint32_t* counts, int vocab, const int32_t* prompt, int n_prompt, const int32_t* completion, int n_completion,
                         cudaStream_t stream) {
  if (const auto error = cudaMemsetAsync(counts, 0, static_cast<size_t>(vocab) * sizeof(uint32_t), stream); error != cudaSuccess)
    return error;
  if (n_prompt + n_completion == 0) return cudaSuccess;
  count_rows<<<16, 256, 0, stream>>>(counts, prompt, n_prompt, completion, n_completion);
  return cudaGetLastError();
}

}  // namespace lockstep::kernels
