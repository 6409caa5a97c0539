// What the kernels of this folder share. Compiled once for each instruction set, so its guard toggles: for files that
// include it after hwy/foreach_target.h.

#if defined(ESPALIER_WORKER_SELECT_WORDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ESPALIER_WORKER_SELECT_WORDS_INL_H_
#undef ESPALIER_WORKER_SELECT_WORDS_INL_H_
#else
#define ESPALIER_WORKER_SELECT_WORDS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace espalier {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// All kernels walk words of a mask, 64 elements each. Images have no sign bit, so that signed comparisons order them:
// those are the ones that every instruction set has.
constexpr size_t kWordElements = 64;

template <class T>
using Elements = hn::CappedTag<T, kWordElements>;

#if HWY_TARGET == HWY_SCALAR  // vectors of one lane, which bytes do not fill
template <class D>
hn::Vec<D> LoadElements(D d, const uint8_t* from) {
  hn::TFromD<D> element;
  hwy::CopyBytes<sizeof(element)>(from, &element);
  return hn::Set(d, element);
}
#else
template <class D>
hn::Vec<D> LoadElements(D d, const uint8_t* from) {
  return hn::BitCast(d, hn::LoadU(hn::Repartition<uint8_t, D>(), from));
}
#endif

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

// The lowest Lanes(d) bits.
template <class D>
hn::Mask<D> MaskFromBits(D d, uint64_t bits) {
  uint8_t packed[sizeof(bits)];
  hwy::CopyBytes<sizeof(bits)>(&bits, packed);
  return hn::LoadMaskBits(d, packed);
}

// Images of the elements at `from`, NaNs folded into `nan`.
template <class T, class D>
hn::Vec<D> LoadImages(D d, const uint8_t* from, T nan) {
  constexpr T kMagnitude = std::numeric_limits<T>::max();
  return hn::Min(hn::And(LoadElements(d, from), hn::Set(d, kMagnitude)), hn::Set(d, nan));
}

// Calls body(word, elements, valid) for each word; the last, incomplete one is a copy filled with zeros.
template <class T, class Body>
void ForEachWord(const uint8_t* elements, size_t begin_word, size_t count, Body body) {
  const size_t words = count / kWordElements;
  for (size_t w = begin_word; w < words; ++w) {
    body(w, elements + w * kWordElements * sizeof(T), ~uint64_t{0});
  }
  if (const size_t rest = count % kWordElements; rest != 0 && begin_word <= words) {
    HWY_ALIGN uint8_t tail[kWordElements * sizeof(T)] = {};
    std::copy_n(elements + words * kWordElements * sizeof(T), rest * sizeof(T), tail);
    body(words, tail, (uint64_t{1} << rest) - 1);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace espalier
HWY_AFTER_NAMESPACE();

#endif
