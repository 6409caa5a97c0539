#include "worker/shard/shard_range.h"

#include <algorithm>
#include <limits>

#include "absl/algorithm/container.h"

namespace espalier {
namespace {

int64_t Product(absl::Span<const int64_t> dimensions) {
  if (absl::c_linear_search(dimensions, 0)) return 0;
  int64_t product = 1;
  for (const int64_t dimension : dimensions) {
    if (__builtin_mul_overflow(product, dimension, &product)) return std::numeric_limits<int64_t>::max();
  }
  return product;
}

}  // namespace

int64_t NumElements(absl::Span<const int64_t> shape) {
  return Product(shape);
}

int64_t RowElements(absl::Span<const int64_t> shape) {
  return shape.size() < 2 ? 1 : Product(shape.subspan(1));
}

ShardRange RowShard(absl::Span<const int64_t> shape, int rank, int world_size) {
  const int64_t rows = shape.empty() ? 1 : shape[0];
  const int64_t chunk = rows / world_size + (rows % world_size != 0 ? 1 : 0);
  const int64_t row = RowElements(shape);
  return {.begin = std::min(rank * chunk, rows) * row, .end = std::min((rank + 1) * chunk, rows) * row};
}

}  // namespace espalier
