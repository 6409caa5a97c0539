#include "worker/mask/kernels.h"

#include <algorithm>
#include <cassert>
#include <limits>

// Highway compiles this file once for each instruction set and picks the best at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker/mask/kernels.cc"
#include "hwy/foreach_target.h"
// clang-format off: foreach_target.h comes first
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "worker/mask/words-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace espalier {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// `magnitude` has the bits of an element that say whether it is zero.
template <class D>
hn::Mask<D> IsZero(D d, hn::Vec<D> elements, hn::TFromD<D> magnitude) {
  return hn::Eq(hn::And(elements, hn::Set(d, magnitude)), hn::Zero(d));
}

template <class T>
void ApplyWord(uint8_t* elements, uint64_t keep) {
  if (keep == ~uint64_t{0}) return;
  const Elements<T> d;
  for (size_t i = 0; i < kWordElements; i += hn::Lanes(d)) {
    uint8_t* at = elements + i * sizeof(T);
    StoreElements(d, hn::IfThenElseZero(MaskFromBits(d, keep >> i), LoadElements(d, at)), at);
  }
}

template <class T>
void ApplyTo(uint8_t* elements, size_t count, const uint64_t* keep) {
  const size_t words = count / kWordElements;
  for (size_t w = 0; w < words; ++w) ApplyWord<T>(elements + w * kWordElements * sizeof(T), keep[w]);
  if (const size_t rest = count % kWordElements; rest != 0) {
    uint8_t* at = elements + words * kWordElements * sizeof(T);
    Tail<T> tail(at, rest, 0);
    ApplyWord<T>(tail.data(), keep[words]);
    tail.CopyTo(at);
  }
}

// Asks for elements that are read somewhat later. Where a pass computes more than a few instructions a vector, the
// processor on its own does not look far enough ahead to keep the memory busy; past the end it is harmless.
template <class T>
void PrefetchWord(const uint8_t* elements) {
  constexpr size_t kAhead = 1024;
  constexpr size_t kCacheLine = 64;
  for (size_t i = 0; i < kWordElements * sizeof(T); i += kCacheLine) hwy::Prefetch(elements + kAhead + i);
}

// Elements for which `is`, of a vector, holds; of bytes `fill` it must not.
template <class T, class Is>
int64_t CountOf(const uint8_t* elements, size_t count, uint8_t fill, Is is) {
  const Elements<T> d;
  const auto in_word = [&](const uint8_t* at) {
    return hwy::PopCount(WordOfMasks<T>([&](size_t i) { return is(LoadElements(d, at + i * sizeof(T))); }));
  };
  const size_t words = count / kWordElements;
  size_t sum = 0;
  for (size_t w = 0; w < words; ++w) {
    const uint8_t* at = elements + w * kWordElements * sizeof(T);
    PrefetchWord<T>(at);
    sum += in_word(at);
  }
  if (const size_t rest = count % kWordElements; rest != 0) {
    Tail<T> tail(elements + words * kWordElements * sizeof(T), rest, fill);
    sum += in_word(tail.data());
  }
  return static_cast<int64_t>(sum);
}

template <class T>
int64_t CountZerosOf(const uint8_t* elements, size_t count, T magnitude) {
  const Elements<T> d;
  return CountOf<T>(elements, count, 0xFF, [&](auto vector) { return IsZero(d, vector, magnitude); });
}

template <class T>
int64_t CountAboveOf(const uint8_t* elements, size_t count, T magnitude, T bound) {
  const Elements<T> d;
  return CountOf<T>(elements, count, 0,
                    [&](auto vector) { return hn::Gt(hn::And(vector, hn::Set(d, magnitude)), hn::Set(d, bound)); });
}

// Bit i: element i of a word is zero.
template <class T>
uint64_t ZeroBits(const uint8_t* elements, T magnitude) {
  const Elements<T> d;
  return WordOfMasks<T>([&](size_t i) { return IsZero(d, LoadElements(d, elements + i * sizeof(T)), magnitude); });
}

template <class T>
void NonZerosOf(const uint8_t* elements, size_t count, T magnitude, uint64_t* keep) {
  const size_t words = count / kWordElements;
  for (size_t w = 0; w < words; ++w) {
    keep[w] = ~ZeroBits<T>(elements + w * kWordElements * sizeof(T), magnitude);
  }
  if (const size_t rest = count % kWordElements; rest != 0) {
    Tail<T> tail(elements + words * kWordElements * sizeof(T), rest, 0);
    keep[words] = ~ZeroBits<T>(tail.data(), magnitude);
  }
}

template <class T>
void VerifyOf(const uint8_t* elements, size_t count, const uint64_t* keep, T magnitude, int64_t& zeros,
              int64_t& violations) {
  const size_t words = count / kWordElements;
  size_t zero = 0;
  size_t fine = 0;  // zero or kept
  for (size_t w = 0; w < words; ++w) {
    const uint8_t* at = elements + w * kWordElements * sizeof(T);
    PrefetchWord<T>(at);
    const uint64_t bits = ZeroBits<T>(at, magnitude);
    zero += hwy::PopCount(bits);
    fine += hwy::PopCount(bits | keep[w]);
  }
  if (const size_t rest = count % kWordElements; rest != 0) {
    Tail<T> tail(elements + words * kWordElements * sizeof(T), rest, 0xFF);
    const uint64_t bits = ZeroBits<T>(tail.data(), magnitude);
    zero += hwy::PopCount(bits);
    fine += hwy::PopCount(bits | keep[words]);
  }
  zeros = static_cast<int64_t>(zero);
  violations = static_cast<int64_t>(count - fine);
}

// What dynamic dispatch calls: `width` chooses the element type.

void Apply(size_t width, uint8_t* elements, size_t count, const uint64_t* keep) {
  WithWidth(width, [&]<class T>(T) { ApplyTo<T>(elements, count, keep); });
}

int64_t Zeros(size_t width, const uint8_t* elements, size_t count, uint64_t magnitude) {
  return WithWidth(width, [&]<class T>(T) { return CountZerosOf<T>(elements, count, static_cast<T>(magnitude)); });
}

int64_t Above(size_t width, const uint8_t* elements, size_t count, uint64_t magnitude, uint64_t bound) {
  return WithWidth(width, [&]<class T>(T) {
    return CountAboveOf<T>(elements, count, static_cast<T>(magnitude), static_cast<T>(bound));
  });
}

void Verify(size_t width, const uint8_t* elements, size_t count, const uint64_t* keep, uint64_t magnitude,
            int64_t& zeros, int64_t& violations) {
  WithWidth(width,
            [&]<class T>(T) { VerifyOf<T>(elements, count, keep, static_cast<T>(magnitude), zeros, violations); });
}

void NonZeros(size_t width, const uint8_t* elements, size_t count, uint64_t magnitude, uint64_t* keep) {
  WithWidth(width, [&]<class T>(T) { NonZerosOf<T>(elements, count, static_cast<T>(magnitude), keep); });
}

}  // namespace HWY_NAMESPACE
}  // namespace espalier
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "worker/device/accelerator.h"
#include "worker/shard/dtype.h"

namespace espalier {
namespace {

HWY_EXPORT(Apply);
HWY_EXPORT(Zeros);
HWY_EXPORT(Above);
HWY_EXPORT(Verify);
HWY_EXPORT(NonZeros);

// How the bits of an element are read.
struct Encoding {
  uint64_t magnitude;           // an element is zero when none of these bits is set
  uint64_t largest_number = 0;  // floats: magnitudes above this one are NaN
  bool has_zero = true;
};

Encoding EncodingOf(v1::Dtype dtype) {
  switch (dtype) {
    case v1::DTYPE_F64:
      return {0x7FFF'FFFF'FFFF'FFFF, 0x7FF0'0000'0000'0000};
    case v1::DTYPE_F32:
      return {0x7FFF'FFFF, 0x7F80'0000};
    case v1::DTYPE_F16:
      return {0x7FFF, 0x7C00};
    case v1::DTYPE_BF16:
      return {0x7FFF, 0x7F80};
    case v1::DTYPE_F8_E5M2:
      return {0x7F, 0x7C};
    case v1::DTYPE_F8_E4M3:  // the variant without infinities: one magnitude is NaN
      return {0x7F, 0x7E};
    case v1::DTYPE_F8_E8M0:  // powers of two: no sign, no zero, 255 is NaN
      return {0xFF, 0xFE, false};
    case v1::DTYPE_C64:  // two F32; zero where both are
      return {0x7FFF'FFFF'7FFF'FFFF};
    default:
      return {~uint64_t{0}};
  }
}

// The kernels read and write elements as bytes, for which std::byte and unsigned char are the same.
const uint8_t* Raw(absl::Span<const std::byte> bytes) {
  return reinterpret_cast<const uint8_t*>(bytes.data());
}
uint8_t* Raw(absl::Span<std::byte> bytes) {
  return reinterpret_cast<uint8_t*>(bytes.data());
}

size_t Width(v1::Dtype dtype) {
  assert(DtypeSize(dtype) != 0);
  return static_cast<size_t>(std::max<int64_t>(DtypeSize(dtype), 1));
}

DeviceElements OnDevice(v1::Dtype dtype, absl::Span<const std::byte> bytes) {
  const size_t width = Width(dtype);
  // Whoever writes has been given bytes to write to.
  return {const_cast<std::byte*>(bytes.data()), static_cast<int>(width), static_cast<int64_t>(bytes.size() / width)};
}

}  // namespace

void ApplyMask(v1::Dtype dtype, absl::Span<std::byte> bytes, const Bitmask& mask) {
  const size_t count = bytes.size() / Width(dtype);
  assert(static_cast<int64_t>(count) == mask.size());
  if (Accelerator* device = AcceleratorOf(bytes.data())) {
    return device->Apply(OnDevice(dtype, bytes), mask.words().data());
  }
  HWY_DYNAMIC_DISPATCH(Apply)(Width(dtype), Raw(bytes), count, mask.words().data());
}

int64_t CountZeros(v1::Dtype dtype, absl::Span<const std::byte> bytes) {
  const Encoding encoding = EncodingOf(dtype);
  if (!encoding.has_zero) return 0;
  if (Accelerator* device = AcceleratorOf(bytes.data())) {
    return device->CountZeros(OnDevice(dtype, bytes), encoding.magnitude);
  }
  return HWY_DYNAMIC_DISPATCH(Zeros)(Width(dtype), Raw(bytes), bytes.size() / Width(dtype), encoding.magnitude);
}

int64_t CountNans(v1::Dtype dtype, absl::Span<const std::byte> bytes) {
  if (!IsFloatDtype(dtype)) return 0;
  const Encoding encoding = EncodingOf(dtype);
  if (Accelerator* device = AcceleratorOf(bytes.data())) {
    return device->CountAbove(OnDevice(dtype, bytes), encoding.magnitude, encoding.largest_number);
  }
  return HWY_DYNAMIC_DISPATCH(Above)(Width(dtype), Raw(bytes), bytes.size() / Width(dtype), encoding.magnitude,
                                     encoding.largest_number);
}

VerifyCounts VerifyMask(v1::Dtype dtype, absl::Span<const std::byte> bytes, const Bitmask& mask) {
  const size_t count = bytes.size() / Width(dtype);
  assert(static_cast<int64_t>(count) == mask.size());
  const Encoding encoding = EncodingOf(dtype);
  VerifyCounts counts;
  if (Accelerator* device = AcceleratorOf(bytes.data())) {
    device->Verify(OnDevice(dtype, bytes), mask.words().data(), encoding.magnitude, counts.zeros, counts.violations);
    return counts;
  }
  HWY_DYNAMIC_DISPATCH(Verify)
  (Width(dtype), Raw(bytes), count, mask.words().data(), encoding.magnitude, counts.zeros, counts.violations);
  return counts;
}

Bitmask MaskOfZeros(v1::Dtype dtype, absl::Span<const std::byte> bytes) {
  const size_t count = bytes.size() / Width(dtype);
  Bitmask mask(static_cast<int64_t>(count));
  if (!EncodingOf(dtype).has_zero) return mask;
  if (Accelerator* device = AcceleratorOf(bytes.data())) {
    device->NonZeros(OnDevice(dtype, bytes), EncodingOf(dtype).magnitude, mask.words().data());
    return mask;
  }
  HWY_DYNAMIC_DISPATCH(NonZeros)
  (Width(dtype), Raw(bytes), count, EncodingOf(dtype).magnitude, mask.words().data());
  return mask;
}

}  // namespace espalier
#endif  // HWY_ONCE
