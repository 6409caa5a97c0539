#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "espalier/v1/model.pb.h"

namespace espalier {

// Magnitudes as integers that keep their order: the bits of |w| without the sign. Zero is 0; every NaN is the one value
// next to +Inf, so that NaNs are equal among themselves.
struct ImageFormat {
  int bits = 0;      // 15, 31 or 63
  uint64_t nan = 0;  // image of NaN; that of +Inf is one less
};

// The elements of a shard, to be looked at as magnitudes.
struct Magnitudes {
  v1::Dtype dtype = v1::DTYPE_UNSPECIFIED;  // prunable
  absl::Span<const std::byte> bytes;        // little-endian
  bool as_f64 = false;                      // images of the values converted to F64, which is exact

  int64_t size() const;
  ImageFormat format() const;
};

// One pass of a radix select: the elements whose image starts with `prefix`, told apart by the `width` bits that follow.
// `shift` bits come after those.
struct RadixPass {
  uint64_t prefix = 0;
  int width = 0;
  int shift = 0;

  size_t bins() const { return size_t{1} << width; }
};

}  // namespace espalier
