#pragma once

// The passes of an Accelerator as CUDA kernels. All pointers are memory that the device reaches; masks are 64-bit words as in
// worker/device/accelerator.h; counts are added to what is there. Each call puts its kernels on the stream and returns what
// the launch did, not what the kernel will.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "worker/device/accelerator.h"

namespace espalier::cuda {

// Where kernels run.
struct Place {
  cudaStream_t stream = nullptr;
  int multiprocessors = 1;
  int shared_bytes = 0;  // that one block may have, at its wish
};

// cudaErrorNoKernelImageForDevice where this build has none for the current device.
cudaError_t FindKernels();

cudaError_t Apply(const Place& place, DeviceElements elements, const uint64_t* keep);
cudaError_t CountZeros(const Place& place, DeviceElements elements, uint64_t magnitude, uint64_t* zeros);
cudaError_t CountAbove(const Place& place, DeviceElements elements, uint64_t magnitude, uint64_t bound,
                       uint64_t* above);
// `counts`: zeros, then violations.
cudaError_t Verify(const Place& place, DeviceElements elements, const uint64_t* keep, uint64_t magnitude,
                   uint64_t* counts);
cudaError_t NonZeros(const Place& place, DeviceElements elements, uint64_t magnitude, uint64_t* keep);
cudaError_t Histogram(const Place& place, DeviceElements elements, const DevicePass& pass, const uint64_t* keep,
                      uint64_t* bins);
cudaError_t Compare(const Place& place, DeviceElements elements, uint64_t threshold, uint64_t nan, uint64_t* below,
                    uint64_t* equal);

}  // namespace espalier::cuda
