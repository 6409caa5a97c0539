#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "espalier/v1/model.pb.h"

namespace espalier::bench {

// The k-th smallest magnitude by torch.kthvalue, one thread. BF16 and F32.
double KthByTorch(v1::Dtype dtype, absl::Span<const std::byte> bytes, int64_t k);

}  // namespace espalier::bench
