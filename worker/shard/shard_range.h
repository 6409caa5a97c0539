#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace espalier {

// A contiguous range of elements of a row-major tensor: what one rank holds of one parameter. All code below the layout
// speaks of ranges only; it never assumes that rows are whole.
struct ShardRange {
  int64_t begin = 0;  // first element
  int64_t end = 0;    // one past the last

  int64_t size() const { return end - begin; }
  bool empty() const { return begin == end; }
  bool operator==(const ShardRange&) const = default;
};

// Product of the dimensions; 1 for a rank-0 tensor; the greatest int64 where it does not fit one, which no size check
// passes.
int64_t NumElements(absl::Span<const int64_t> shape);

// Elements of one row, the product of all dimensions but the first; 1 for shapes of one or no dimension.
int64_t RowElements(absl::Span<const int64_t> shape);

// The rows of `rank` of `world_size`, as torch.chunk and FSDP2 cut dimension 0: [r*c, min((r+1)*c, d0)) with
// c = ceil(d0 / world_size); trailing ranks may own nothing. A rank-0 tensor is one row, owned by rank 0.
ShardRange RowShard(absl::Span<const int64_t> shape, int rank, int world_size);

}  // namespace espalier
