#pragma once

// What a pass over a shard computes of one element, written once for host and device (nvcc compiles it for both). Elements are
// the bits of a value as an unsigned integer; see mask/kernels.h and select/magnitude.h for what the parameters mean.

#include <cstdint>

#ifdef __CUDACC__
#define ESPALIER_HOST_DEVICE __host__ __device__
#else
#define ESPALIER_HOST_DEVICE
#endif

namespace espalier {

// `magnitude` has the bits that say whether an element is zero.
template <class T>
ESPALIER_HOST_DEVICE constexpr bool IsZero(T element, T magnitude) {
  return (element & magnitude) == 0;
}

// NaN, where `bound` is the greatest magnitude that is a number.
template <class T>
ESPALIER_HOST_DEVICE constexpr bool IsAbove(T element, T magnitude, T bound) {
  return static_cast<T>(element & magnitude) > bound;
}

// The element where it is kept, +0 where not: a choice, never a product, since Inf x 0 is NaN.
template <class T>
ESPALIER_HOST_DEVICE constexpr T Masked(T element, bool keep) {
  return keep ? element : T{0};
}

// The magnitude as an integer that keeps the order, every NaN as one value.
template <class T>
ESPALIER_HOST_DEVICE constexpr T ImageOf(T element, T nan) {
  const T image = static_cast<T>(element & static_cast<T>(static_cast<T>(~T{0}) >> 1));
  return image < nan ? image : nan;
}

// Whether a radix pass over images in [low, last] counts an image, and in which bin.
template <class T>
ESPALIER_HOST_DEVICE constexpr bool IsWithin(T image, T low, T last) {
  return low <= image && image <= last;
}
template <class T>
ESPALIER_HOST_DEVICE constexpr uint32_t BinOf(T image, T low, int shift) {
  return static_cast<uint32_t>(static_cast<T>(image - low) >> shift);
}

// Bit i of a mask.
ESPALIER_HOST_DEVICE constexpr bool BitOf(const uint64_t* words, int64_t i) {
  return (words[i >> 6] >> (i & 63) & 1) != 0;
}

}  // namespace espalier
