// What a decoder does row by row beside norms: embedding, adding, gating, gathering, converting. Raw pointers, dims, stream last; no
// include of src/. Matrices are bf16 with row strides in elements unless said otherwise. Each element is one fixed sequence of IEEE
// operations, so bits don't depend on the launch.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace lockstep::kernels {

// out [n_rows, n_cols] = table [vocab, n_cols] at tokens [n_rows]; a token ~s, below 0, is the one last sampled into slot s of
// slots. Reads and writes 2 bytes an element.
cudaError_t embed(__nv_bfloat16* out, int out_stride, const __nv_bfloat16* table, int n_cols, const int32_t* tokens,
                  const int32_t* slots, int n_rows, cudaStream_t stream);

// residual += delta, rounded to bf16.
cudaError_t add(__nv_bfloat16* residual, int stride, const __nv_bfloat16* delta, int delta_stride, int n_rows, int n_cols,
                cudaStream_t stream);

// out [n_rows, n_cols] += bias [n_cols] f32, rounded to bf16; or f32 out.
cudaError_t add_bias(__nv_bfloat16* out, int stride, const float* bias, int n_rows, int n_cols, cudaStream_t stream);
cudaError_t add_bias(float* out, int stride, const float* bias, int n_rows, int n_cols, cudaStream_t stream);

// out [n_rows, n_cols] = silu(gate) * up; gate_up [n_rows, 2 n_cols], gate first.
cudaError_t silu_mul(__nv_bfloat16* out, int stride, const __nv_bfloat16* gate_up, int gate_stride, int n_rows, int n_cols,
                     cudaStream_t stream);

// out [n_rows, n_cols] = the rows of x that `rows` [n_rows] names.
cudaError_t gather_rows(__nv_bfloat16* out, int out_stride, const __nv_bfloat16* x, int x_stride, const int32_t* rows, int n_rows,
                        int n_cols, cudaStream_t stream);

// f32 [n_rows, n_cols], dense, to bf16 and back.
cudaError_t from_f32(__nv_bfloat16* out, int out_stride, const float* x, int n_rows, int64_t n_cols, cudaStream_t stream);
cudaError_t to_f32(float* out, const __nv_bfloat16* x, int x_stride, int n_rows, int64_t n_cols, cudaStream_t stream);

// For the admission of matrix products: values about uniform in (-1, 1) from their index, one value everywhere, and *flag = 1 (never
// back to 0) if two memories differ.
cudaError_t fill_random(__nv_bfloat16* out, size_t n, uint32_t seed, cudaStream_t stream);
cudaError_t fill(__nv_bfloat16* out, size_t n, float value, cudaStream_t stream);
cudaError_t compare(const void* a, const void* b, size_t n_bytes, int* flag, cudaStream_t stream);  // n_bytes a multiple of 4

}  // namespace lockstep::kernels
