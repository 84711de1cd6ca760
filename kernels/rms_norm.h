// RMSNorm over rows, alone and after adding to the residual stream. Raw pointers, dims, stream last; no include of src/.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

namespace lockstep::kernels {

// out = x / sqrt(mean(x^2) + eps) * weight, each row alone; the quotient is rounded to bf16 before the product, as Transformers does.
// x, out [n_rows, n_cols] bf16 with row strides in elements; weight [n_cols] f32. n_cols a multiple of 8, rows 16-byte aligned.
cudaError_t rms_norm(__nv_bfloat16* out, int out_stride, const __nv_bfloat16* x, int x_stride, const float* weight, int n_rows,
                     int n_cols, float eps, cudaStream_t stream);

// residual += delta, rounded to bf16, then out = rms_norm(residual).
cudaError_t add_rms_norm(__nv_bfloat16* out, int out_stride, __nv_bfloat16* residual, int residual_stride, const __nv_bfloat16* delta,
                         int delta_stride, const float* weight, int n_rows, int n_cols, float eps, cudaStream_t stream);

}  // namespace lockstep::kernels
