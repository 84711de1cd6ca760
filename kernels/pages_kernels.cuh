// The kernel of pages.cu.
#pragma once

#include "kernels/pages.h"

namespace lockstep::kernels {

namespace {

// A block a page and layer: blockIdx.x the page, blockIdx.y the layer.
__global__ void copy_one_page(CopyPages a) {
  auto* on_gpu =
      reinterpret_cast<uint4*>(a.pool + blockIdx.y * a.layer_bytes + static_cast<size_t>(a.page[blockIdx.x]) * a.page_bytes);
  auto* on_host = reinterpret_cast<uint4*>(a.host[blockIdx.x] + blockIdx.y * a.page_bytes);
  const uint4* from = a.to_host ? on_gpu : on_host;
  uint4* to = a.to_host ? on_host : on_gpu;
  for (size_t i = threadIdx.x; i < a.page_bytes / sizeof(uint4); i += blockDim.x) to[i] = from[i];
}

}  // namespace

}  // namespace lockstep::kernels
