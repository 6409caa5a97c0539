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
#include "worker/mask/words-inl.h"

HWY_BEFORE_NAMESPACE();
namespace espalier {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Images of the elements at `from`, NaNs folded into `nan`. They have no sign bit, so that signed comparisons order them:
// those are the ones that every instruction set has.
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
