// What the kernels of mask/ and select/ share. Compiled once for each instruction set, so its guard toggles: for files that
// include it after hwy/foreach_target.h.

#if defined(ESPALIER_WORKER_MASK_WORDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ESPALIER_WORKER_MASK_WORDS_INL_H_
#undef ESPALIER_WORKER_MASK_WORDS_INL_H_
#else
#define ESPALIER_WORKER_MASK_WORDS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace espalier {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// All kernels walk words of a mask, 64 elements each; elements are unsigned integers of their width.
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

// The 64 bits of masks of Elements<T>: mask_at(i) is the mask of the vector at element i.
template <class T, class MaskAt>
uint64_t WordOfMasks(MaskAt mask_at) {
  const Elements<T> d;
  uint64_t word = 0;
  // StoreMaskBits wants room for 8 bytes.
  HWY_ALIGN uint8_t packed[2 * sizeof(word)] = {};
  if (hn::Lanes(d) >= 8) {
    for (size_t i = 0; i < kWordElements; i += hn::Lanes(d)) hn::StoreMaskBits(d, mask_at(i), packed + i / 8);
    hwy::CopyBytes<sizeof(word)>(packed, &word);
    return word;
  }
  for (size_t i = 0; i < kWordElements; i += hn::Lanes(d)) {
    hn::StoreMaskBits(d, mask_at(i), packed);
    word |= uint64_t{packed[0]} << i;
  }
  return word;
}

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

// body(T()) for the unsigned integer T of `width` bytes.
template <class Body>
auto WithWidth(size_t width, Body body) {
  switch (width) {
    case 1:
      return body(uint8_t());
    case 2:
      return body(uint16_t());
    case 4:
      return body(uint32_t());
    default:
      return body(uint64_t());
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace espalier
HWY_AFTER_NAMESPACE();

#endif
