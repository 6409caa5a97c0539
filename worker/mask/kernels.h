#pragma once

// One pass over a shard at memory bandwidth (Highway, dispatched at run time). `bytes` are elements of `dtype`,
// little-endian, 64-byte aligned when they come from Storage, any alignment otherwise. Prunable dtypes unless said.

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "espalier/v1/model.pb.h"
#include "worker/mask/bitmask.h"

namespace espalier {

// Stores +0.0 where the mask prunes (a select, never a product: Inf x 0 is NaN); all other bits stay as they are.
void ApplyMask(v1::Dtype dtype, absl::Span<std::byte> bytes, const Bitmask& mask);

// Elements that equal zero (+0.0, -0.0). Any dtype: integers and bool by value, 8-bit floats likewise.
int64_t CountZeros(v1::Dtype dtype, absl::Span<const std::byte> bytes);

// NaN elements; 0 for non-floating dtypes.
int64_t CountNans(v1::Dtype dtype, absl::Span<const std::byte> bytes);

// What the second path asks of a live shard, in one pass.
struct VerifyCounts {
  int64_t zeros = 0;       // elements equal to zero
  int64_t violations = 0;  // elements not equal to zero where the mask prunes
};
VerifyCounts VerifyMask(v1::Dtype dtype, absl::Span<const std::byte> bytes, const Bitmask& mask);

// A mask that prunes exactly the zeros.
Bitmask MaskOfZeros(v1::Dtype dtype, absl::Span<const std::byte> bytes);

}  // namespace espalier
