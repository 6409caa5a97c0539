#pragma once

// The packed form of masks on disk, in ReadMask and in uploads: U8 of shape [d0, ceil(rest / 8)] (one dimension: [n,
// 1]; rank 0: [1, 1]), least significant bit first, 1 = keep, padding bits zero. Rows are whole bytes, so ranks that
// own rows never share one.

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/mask/bitmask.h"
#include "worker/shard/shard_range.h"

namespace espalier {

// [rows, bytes a row] of the packed mask of a parameter.
std::array<int64_t, 2> PackedShape(absl::Span<const int64_t> shape);

// Packs the mask of whole rows: `mask` covers `range`, a multiple of RowElements(shape).
std::vector<uint8_t> PackRows(absl::Span<const int64_t> shape, ShardRange range, const Bitmask& mask);

// The reverse. CHECKPOINT_INVALID when the size does not fit or padding bits are set.
absl::StatusOr<Bitmask> UnpackRows(absl::Span<const int64_t> shape, ShardRange range, absl::Span<const uint8_t> packed);

}  // namespace espalier
