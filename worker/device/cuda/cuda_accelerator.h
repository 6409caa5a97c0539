#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "worker/device/accelerator.h"

namespace espalier {

// An NVIDIA GPU, by its number among those that this process sees. Shards are CUDA managed memory whose place is the device:
// what reads or writes them on the host moves the pages it touches, and the next pass brings them back. The host waits for
// each pass.
//
// Errors: REQUEST_INVALID (no driver, no GPU, no such GPU, or one without concurrent access to managed memory).
absl::StatusOr<std::unique_ptr<Accelerator>> OpenCuda(int number);

// How many GPUs this process sees. REQUEST_INVALID where there is no driver or no GPU.
absl::StatusOr<int> CountCudaDevices();

}  // namespace espalier
