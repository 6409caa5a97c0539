#pragma once

// Images of single elements, for code that looks at few of them.

#include <bit>
#include <cstring>

#include "worker/select/magnitude.h"

namespace espalier {

// A value of IEEE binary16 as binary64, exactly.
inline double F16ToDouble(uint16_t half) {
  const int exponent = half >> 10 & 0x1f;
  const int mantissa = half & 0x3ff;
  const uint64_t sign = uint64_t{half} >> 15 << 63;
  uint64_t bits;
  if (exponent == 0x1f) {
    bits = uint64_t{0x7ff} << 52 | uint64_t(mantissa) << 42;
  } else if (exponent == 0) {
    bits = std::bit_cast<uint64_t>(mantissa * 0x1p-24);
  } else {
    bits = uint64_t(exponent - 15 + 1023) << 52 | uint64_t(mantissa) << 42;
  }
  return std::bit_cast<double>(bits | sign);
}

// Reads images of a dtype (as itself or as F64). A NaN is not yet folded into one value: see ImageAt.
template <v1::Dtype kDtype, bool kAsF64>
struct ImageReader;

template <>
struct ImageReader<v1::DTYPE_BF16, false> {
  using Raw = uint16_t;
  using Image = uint32_t;
  static Image Of(Raw raw) { return raw & 0x7fffu; }
};
template <>
struct ImageReader<v1::DTYPE_F16, false> : ImageReader<v1::DTYPE_BF16, false> {};
template <>
struct ImageReader<v1::DTYPE_F32, false> {
  using Raw = uint32_t;
  using Image = uint32_t;
  static Image Of(Raw raw) { return raw & 0x7fff'ffffu; }
};
template <bool kAsF64>
struct ImageReader<v1::DTYPE_F64, kAsF64> {
  using Raw = uint64_t;
  using Image = uint64_t;
  static Image Of(Raw raw) { return raw & 0x7fff'ffff'ffff'ffff; }
};
template <>
struct ImageReader<v1::DTYPE_BF16, true> {
  using Raw = uint16_t;
  using Image = uint64_t;
  static Image Of(Raw raw) {
    const double value = std::bit_cast<float>(uint32_t{raw} << 16);
    return std::bit_cast<uint64_t>(value) & 0x7fff'ffff'ffff'ffff;
  }
};
template <>
struct ImageReader<v1::DTYPE_F16, true> {
  using Raw = uint16_t;
  using Image = uint64_t;
  static Image Of(Raw raw) { return std::bit_cast<uint64_t>(F16ToDouble(raw)) & 0x7fff'ffff'ffff'ffff; }
};
template <>
struct ImageReader<v1::DTYPE_F32, true> {
  using Raw = uint32_t;
  using Image = uint64_t;
  static Image Of(Raw raw) {
    const double value = std::bit_cast<float>(raw);
    return std::bit_cast<uint64_t>(value) & 0x7fff'ffff'ffff'ffff;
  }
};

// The image of element i, NaNs folded.
template <class Reader>
typename Reader::Image ImageAt(absl::Span<const std::byte> bytes, int64_t i, typename Reader::Image nan) {
  typename Reader::Raw raw;
  std::memcpy(&raw, bytes.data() + static_cast<size_t>(i) * sizeof(raw), sizeof(raw));
  return std::min(Reader::Of(raw), nan);
}

// Calls body(ImageReader<...>()) for the elements at hand.
template <class Body>
auto WithReader(const Magnitudes& values, Body body) {
  if (values.as_f64) {
    switch (values.dtype) {
      case v1::DTYPE_BF16:
        return body(ImageReader<v1::DTYPE_BF16, true>());
      case v1::DTYPE_F16:
        return body(ImageReader<v1::DTYPE_F16, true>());
      case v1::DTYPE_F32:
        return body(ImageReader<v1::DTYPE_F32, true>());
      default:
        return body(ImageReader<v1::DTYPE_F64, true>());
    }
  }
  switch (values.dtype) {
    case v1::DTYPE_BF16:
      return body(ImageReader<v1::DTYPE_BF16, false>());
    case v1::DTYPE_F16:
      return body(ImageReader<v1::DTYPE_F16, false>());
    case v1::DTYPE_F32:
      return body(ImageReader<v1::DTYPE_F32, false>());
    default:
      return body(ImageReader<v1::DTYPE_F64, false>());
  }
}

}  // namespace espalier
