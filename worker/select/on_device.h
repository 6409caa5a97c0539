#pragma once

// The passes of kernels.h over elements in the memory of an accelerator; not for `as_f64`, which the host reads.

#include "worker/device/accelerator.h"
#include "worker/select/kernels.h"

namespace espalier {

void AddOnDevice(Accelerator& device, const Magnitudes& values, const RadixPass& pass, const Bitmask* first,
                 Histogram& histogram);
OrderCounts CountAtOnDevice(Accelerator& device, const Magnitudes& values, uint64_t threshold, const Bitmask* first);
Bitmask BuildMaskOnDevice(Accelerator& device, const Magnitudes& values, uint64_t threshold, int64_t kept_ties,
                          const Bitmask* first);

}  // namespace espalier
