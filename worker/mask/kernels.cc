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
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace espalier {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// All kernels walk words of the mask, 64 elements each; elements are unsigned integers of their width. `magnitude` has
// the bits of an element that say whether it is zero.
constexpr size_t kWordElements = 64;

// At most one word a vector, so that a word is a whole number of vectors.
template <class T>
using Elements = hn::CappedTag<T, kWordElements>;

// Elements may stand at any address, T at its own multiples alone: bytes are what is loaded and stored.
#if HWY_TARGET == HWY_SCALAR  // vectors of one lane, which bytes do not fill
template <class D>
hn::Vec<D> LoadElements(D d, const uint8_t* from) {
  hn::TFromD<D> element;
  hwy::CopyBytes<sizeof(element)>(from, &element);
  return hn::Set(d, element);
}

template <class D>
void StoreElements(D, hn::Vec<D> elements, uint8_t* to) {
  const hn::TFromD<D> element = hn::GetLane(elements);
  hwy::CopyBytes<sizeof(element)>(&element, to);
}
#else
template <class D>
hn::Vec<D> LoadElements(D d, const uint8_t* from) {
  return hn::BitCast(d, hn::LoadU(hn::Repartition<uint8_t, D>(), from));
}

template <class D>
void StoreElements(D, hn::Vec<D> elements, uint8_t* to) {
  const hn::Repartition<uint8_t, D> bytes;
  hn::StoreU(hn::BitCast(bytes, elements), bytes, to);
}
#endif

// The lowest Lanes(d) bits.
template <class D>
hn::Mask<D> MaskFromBits(D d, uint64_t bits) {
  uint8_t packed[sizeof(bits)];
  hwy::CopyBytes<sizeof(bits)>(&bits, packed);
  return hn::LoadMaskBits(d, packed);
}

// The inverse; higher bits are zero.
template <class D>
uint64_t BitsFromMask(D d, hn::Mask<D> mask) {
  uint8_t packed[sizeof(uint64_t)] = {};
  hn::StoreMaskBits(d, mask, packed);
  uint64_t bits;
  hwy::CopyBytes<sizeof(bits)>(packed, &bits);
  return bits;
}

template <class D>
hn::Mask<D> IsZero(D d, hn::Vec<D> elements, hn::TFromD<D> magnitude) {
  return hn::Eq(hn::And(elements, hn::Set(d, magnitude)), hn::Zero(d));
}

// Counters in the lanes of a vector: a true lane adds one. They are emptied into a 64-bit sum before a lane can overflow.
template <class T>
class LaneCounter {
 public:
  // Words of elements that any lane counts without overflow.
  static size_t WordsUntilFull() {
    const size_t a_word = kWordElements / hn::Lanes(Elements<T>());
    return std::min<size_t>(std::numeric_limits<T>::max() / a_word, size_t{1} << 12);
  }

  static hn::Vec<Elements<T>> Empty() { return hn::Zero(Elements<T>()); }

  static hn::Vec<Elements<T>> Add(hn::Vec<Elements<T>> counts, hn::Mask<Elements<T>> mask) {
    return hn::Sub(counts, hn::VecFromMask(Elements<T>(), mask));
  }

  static int64_t Sum(hn::Vec<Elements<T>> counts) {
    const Elements<T> d;
    HWY_ALIGN T lanes[kWordElements];
    hn::Store(counts, d, lanes);
    int64_t sum = 0;
    for (size_t i = 0; i < hn::Lanes(d); ++i) sum += static_cast<int64_t>(lanes[i]);
    return sum;
  }
};

// A copy of the last, incomplete word of elements, the rest of it filled with a byte.
template <class T>
class Tail {
 public:
  Tail(const uint8_t* from, size_t elements, uint8_t fill) : bytes_(elements * sizeof(T)) {
    std::fill(std::copy_n(from, bytes_, data_), data_ + sizeof(data_), fill);
  }
  uint8_t* data() { return data_; }
  void CopyTo(uint8_t* to) const { std::copy_n(data_, bytes_, to); }

 private:
  HWY_ALIGN uint8_t data_[kWordElements * sizeof(T)];
  size_t bytes_;
};

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

template <class T>
int64_t CountZerosInWords(const uint8_t* elements, size_t words, T magnitude) {
  const Elements<T> d;
  using Counter = LaneCounter<T>;
  int64_t zeros = 0;
  for (size_t w = 0; w < words;) {
    const size_t stop = std::min(words, w + Counter::WordsUntilFull());
    auto counts = Counter::Empty();
    for (; w < stop; ++w) {
      const uint8_t* at = elements + w * kWordElements * sizeof(T);
      for (size_t i = 0; i < kWordElements; i += hn::Lanes(d)) {
        counts = Counter::Add(counts, IsZero(d, LoadElements(d, at + i * sizeof(T)), magnitude));
      }
    }
    zeros += Counter::Sum(counts);
  }
  return zeros;
}

template <class T>
int64_t CountZerosOf(const uint8_t* elements, size_t count, T magnitude) {
  const size_t words = count / kWordElements;
  int64_t zeros = CountZerosInWords<T>(elements, words, magnitude);
  if (const size_t rest = count % kWordElements; rest != 0) {
    Tail<T> tail(elements + words * kWordElements * sizeof(T), rest, 0xFF);
    zeros += CountZerosInWords<T>(tail.data(), 1, magnitude);
  }
  return zeros;
}

template <class T>
int64_t CountAboveInWords(const uint8_t* elements, size_t words, T magnitude, T bound) {
  const Elements<T> d;
  using Counter = LaneCounter<T>;
  int64_t above = 0;
  for (size_t w = 0; w < words;) {
    const size_t stop = std::min(words, w + Counter::WordsUntilFull());
    auto counts = Counter::Empty();
    for (; w < stop; ++w) {
      const uint8_t* at = elements + w * kWordElements * sizeof(T);
      for (size_t i = 0; i < kWordElements; i += hn::Lanes(d)) {
        const auto magnitudes = hn::And(LoadElements(d, at + i * sizeof(T)), hn::Set(d, magnitude));
        counts = Counter::Add(counts, hn::Gt(magnitudes, hn::Set(d, bound)));
      }
    }
    above += Counter::Sum(counts);
  }
  return above;
}

template <class T>
int64_t CountAboveOf(const uint8_t* elements, size_t count, T magnitude, T bound) {
  const size_t words = count / kWordElements;
  int64_t above = CountAboveInWords<T>(elements, words, magnitude, bound);
  if (const size_t rest = count % kWordElements; rest != 0) {
    Tail<T> tail(elements + words * kWordElements * sizeof(T), rest, 0);
    above += CountAboveInWords<T>(tail.data(), 1, magnitude, bound);
  }
  return above;
}

// Bit i: element i of a word is zero.
template <class T>
uint64_t ZeroBits(const uint8_t* elements, T magnitude) {
  const Elements<T> d;
  uint64_t bits = 0;
  for (size_t i = 0; i < kWordElements; i += hn::Lanes(d)) {
    bits |= BitsFromMask(d, IsZero(d, LoadElements(d, elements + i * sizeof(T)), magnitude)) << i;
  }
  return bits;
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

// Asks for elements that are read somewhat later. Where a pass computes more than a few instructions a vector, the
// processor on its own does not look far enough ahead to keep the memory busy; past the end it is harmless.
template <class T>
void PrefetchWord(const uint8_t* elements) {
  constexpr size_t kAhead = 1024;
  constexpr size_t kCacheLine = 64;
  for (size_t i = 0; i < kWordElements * sizeof(T); i += kCacheLine) hwy::Prefetch(elements + kAhead + i);
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
  switch (width) {
    case 1:
      return ApplyTo<uint8_t>(elements, count, keep);
    case 2:
      return ApplyTo<uint16_t>(elements, count, keep);
    case 4:
      return ApplyTo<uint32_t>(elements, count, keep);
    default:
      return ApplyTo<uint64_t>(elements, count, keep);
  }
}

int64_t Zeros(size_t width, const uint8_t* elements, size_t count, uint64_t magnitude) {
  switch (width) {
    case 1:
      return CountZerosOf<uint8_t>(elements, count, static_cast<uint8_t>(magnitude));
    case 2:
      return CountZerosOf<uint16_t>(elements, count, static_cast<uint16_t>(magnitude));
    case 4:
      return CountZerosOf<uint32_t>(elements, count, static_cast<uint32_t>(magnitude));
    default:
      return CountZerosOf<uint64_t>(elements, count, magnitude);
  }
}

int64_t Above(size_t width, const uint8_t* elements, size_t count, uint64_t magnitude, uint64_t bound) {
  switch (width) {
    case 1:
      return CountAboveOf<uint8_t>(elements, count, static_cast<uint8_t>(magnitude), static_cast<uint8_t>(bound));
    case 2:
      return CountAboveOf<uint16_t>(elements, count, static_cast<uint16_t>(magnitude), static_cast<uint16_t>(bound));
    case 4:
      return CountAboveOf<uint32_t>(elements, count, static_cast<uint32_t>(magnitude), static_cast<uint32_t>(bound));
    default:
      return CountAboveOf<uint64_t>(elements, count, magnitude, bound);
  }
}

void Verify(size_t width, const uint8_t* elements, size_t count, const uint64_t* keep, uint64_t magnitude,
            int64_t& zeros, int64_t& violations) {
  switch (width) {
    case 1:
      return VerifyOf<uint8_t>(elements, count, keep, static_cast<uint8_t>(magnitude), zeros, violations);
    case 2:
      return VerifyOf<uint16_t>(elements, count, keep, static_cast<uint16_t>(magnitude), zeros, violations);
    case 4:
      return VerifyOf<uint32_t>(elements, count, keep, static_cast<uint32_t>(magnitude), zeros, violations);
    default:
      return VerifyOf<uint64_t>(elements, count, keep, magnitude, zeros, violations);
  }
}

void NonZeros(size_t width, const uint8_t* elements, size_t count, uint64_t magnitude, uint64_t* keep) {
  switch (width) {
    case 1:
      return NonZerosOf<uint8_t>(elements, count, static_cast<uint8_t>(magnitude), keep);
    case 2:
      return NonZerosOf<uint16_t>(elements, count, static_cast<uint16_t>(magnitude), keep);
    case 4:
      return NonZerosOf<uint32_t>(elements, count, static_cast<uint32_t>(magnitude), keep);
    default:
      return NonZerosOf<uint64_t>(elements, count, magnitude, keep);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace espalier
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
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

}  // namespace

void ApplyMask(v1::Dtype dtype, absl::Span<std::byte> bytes, const Bitmask& mask) {
  const size_t count = bytes.size() / Width(dtype);
  assert(static_cast<int64_t>(count) == mask.size());
  HWY_DYNAMIC_DISPATCH(Apply)(Width(dtype), Raw(bytes), count, mask.words().data());
}

int64_t CountZeros(v1::Dtype dtype, absl::Span<const std::byte> bytes) {
  const Encoding encoding = EncodingOf(dtype);
  if (!encoding.has_zero) return 0;
  return HWY_DYNAMIC_DISPATCH(Zeros)(Width(dtype), Raw(bytes), bytes.size() / Width(dtype), encoding.magnitude);
}

int64_t CountNans(v1::Dtype dtype, absl::Span<const std::byte> bytes) {
  if (!IsFloatDtype(dtype)) return 0;
  const Encoding encoding = EncodingOf(dtype);
  return HWY_DYNAMIC_DISPATCH(Above)(Width(dtype), Raw(bytes), bytes.size() / Width(dtype), encoding.magnitude,
                                     encoding.largest_number);
}

VerifyCounts VerifyMask(v1::Dtype dtype, absl::Span<const std::byte> bytes, const Bitmask& mask) {
  const size_t count = bytes.size() / Width(dtype);
  assert(static_cast<int64_t>(count) == mask.size());
  const Encoding encoding = EncodingOf(dtype);
  VerifyCounts counts;
  HWY_DYNAMIC_DISPATCH(Verify)
  (Width(dtype), Raw(bytes), count, mask.words().data(), encoding.magnitude, counts.zeros, counts.violations);
  return counts;
}

Bitmask MaskOfZeros(v1::Dtype dtype, absl::Span<const std::byte> bytes) {
  const size_t count = bytes.size() / Width(dtype);
  Bitmask mask(static_cast<int64_t>(count));
  if (!EncodingOf(dtype).has_zero) return mask;
  HWY_DYNAMIC_DISPATCH(NonZeros)
  (Width(dtype), Raw(bytes), count, EncodingOf(dtype).magnitude, mask.words().data());
  return mask;
}

}  // namespace espalier
#endif  // HWY_ONCE
