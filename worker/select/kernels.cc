#include "worker/select/kernels.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <limits>

// Highway compiles this file once for each instruction set and picks the best at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker/select/kernels.cc"
#include "hwy/foreach_target.h"
// clang-format off: foreach_target.h comes first
#include "hwy/highway.h"
#include "worker/device/element_ops.h"
#include "worker/select/words-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace espalier {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Bits of the 64 elements at `from` whose image is below `bound`.
template <class T>
uint64_t BelowBits(const uint8_t* from, T bound, T nan) {
  const Elements<T> d;
  return WordOfMasks<T>(
      [&](size_t i) { return hn::Lt(LoadImages<T>(d, from + i * sizeof(T), nan), hn::Set(d, bound)); });
}

// Bits of the 64 elements at `from` whose image equals `value`.
template <class T>
uint64_t EqualBits(const uint8_t* from, T value, T nan) {
  const Elements<T> d;
  return WordOfMasks<T>(
      [&](size_t i) { return hn::Eq(LoadImages<T>(d, from + i * sizeof(T), nan), hn::Set(d, value)); });
}

// Bits of the 64 elements at `from` whose image lies in [low, last].
template <class T>
uint64_t WithinBits(const uint8_t* from, T low, T last, T nan) {
  const Elements<T> d;
  return WordOfMasks<T>([&](size_t i) {
    const auto images = LoadImages<T>(d, from + i * sizeof(T), nan);
    return hn::Not(hn::Or(hn::Lt(images, hn::Set(d, low)), hn::Gt(images, hn::Set(d, last))));
  });
}

template <class T>
void CountAtOf(const uint8_t* elements, size_t count, T threshold, T nan, const uint64_t* first, int64_t& below,
               int64_t& equal) {
  ForEachWord<T>(elements, 0, count, [&](size_t w, const uint8_t* at, uint64_t valid) {
    const uint64_t counted = first == nullptr ? valid : valid & first[w];
    below += std::popcount(BelowBits<T>(at, threshold, nan) & counted);
    equal += std::popcount(EqualBits<T>(at, threshold, nan) & counted);
  });
}

template <class T>
void BuildMaskOf(const uint8_t* elements, size_t count, T threshold, T nan, int64_t kept_ties, const uint64_t* first,
                 uint64_t* keep) {
  // Up to the last tie that is kept ties are looked at one by one, after it they are pruned like what is below.
  const size_t words = (count + kWordElements - 1) / kWordElements;
  size_t done = 0;
  if (kept_ties > 0) {
    ForEachWord<T>(elements, 0, count, [&](size_t w, const uint8_t* at, uint64_t valid) {
      if (kept_ties == 0) return;
      const uint64_t open = first == nullptr ? valid : valid & first[w];
      uint64_t ties = EqualBits<T>(at, threshold, nan) & open;
      const int64_t found = std::popcount(ties);
      if (found <= kept_ties) {
        kept_ties -= found;
        ties = 0;
      } else {
        for (; kept_ties > 0; --kept_ties) ties &= ties - 1;
      }
      keep[w] = open & ~(BelowBits<T>(at, threshold, nan) | ties);
      done = w + 1;
    });
  }
  if (done == words) return;
  const T bound = static_cast<T>(threshold + 1);  // an image is never the greatest T
  ForEachWord<T>(elements, done, count, [&](size_t w, const uint8_t* at, uint64_t valid) {
    const uint64_t open = first == nullptr ? valid : valid & first[w];
    keep[w] = open & ~BelowBits<T>(at, bound, nan);
  });
}

template <class T>
void AddWithinOf(const uint8_t* elements, size_t count, T low, T last, T nan, int shift, Histogram& histogram) {
  using U = std::make_unsigned_t<T>;
  ForEachWord<T>(elements, 0, count, [&](size_t, const uint8_t* at, uint64_t valid) {
    for (uint64_t bits = WithinBits<T>(at, low, last, nan) & valid; bits != 0; bits &= bits - 1) {
      T image;
      hwy::CopyBytes<sizeof(T)>(at + static_cast<size_t>(std::countr_zero(bits)) * sizeof(T), &image);
      histogram.Add(BinOf<U>(ImageOf<U>(static_cast<U>(image), static_cast<U>(nan)), static_cast<U>(low), shift), 1);
    }
  });
}

// What dynamic dispatch calls: `width`, bytes of an element, chooses its type.

void CountAtWords(size_t width, const uint8_t* elements, size_t count, uint64_t threshold, uint64_t nan,
                  const uint64_t* first, int64_t& below, int64_t& equal) {
  const auto run = [&](auto type) {
    using T = decltype(type);
    CountAtOf<T>(elements, count, static_cast<T>(threshold), static_cast<T>(nan), first, below, equal);
  };
  width == 2 ? run(int16_t{}) : width == 4 ? run(int32_t{}) : run(int64_t{});
}

void BuildMaskWords(size_t width, const uint8_t* elements, size_t count, uint64_t threshold, uint64_t nan,
                    int64_t kept_ties, const uint64_t* first, uint64_t* keep) {
  const auto run = [&](auto type) {
    using T = decltype(type);
    BuildMaskOf<T>(elements, count, static_cast<T>(threshold), static_cast<T>(nan), kept_ties, first, keep);
  };
  width == 2 ? run(int16_t{}) : width == 4 ? run(int32_t{}) : run(int64_t{});
}

void AddWithinWords(size_t width, const uint8_t* elements, size_t count, uint64_t low, uint64_t last, uint64_t nan,
                    int shift, Histogram& histogram) {
  const auto run = [&](auto type) {
    using T = decltype(type);
    AddWithinOf<T>(elements, count, static_cast<T>(low), static_cast<T>(last), static_cast<T>(nan), shift, histogram);
  };
  width == 2 ? run(int16_t{}) : width == 4 ? run(int32_t{}) : run(int64_t{});
}

}  // namespace HWY_NAMESPACE
}  // namespace espalier
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "worker/mask/kernels.h"
#include "worker/select/image.h"
#include "worker/select/on_device.h"
#include "worker/shard/dtype.h"

namespace espalier {
namespace {

HWY_EXPORT(CountAtWords);
HWY_EXPORT(BuildMaskWords);
HWY_EXPORT(AddWithinWords);

constexpr size_t kLanes = 4;  // elements of 16 bits in a word
constexpr int kLeadingBits = 15;
constexpr size_t kLeadingBins = size_t{1} << kLeadingBits;

// Elements that one lane may count before it could overflow.
constexpr size_t kCountable = size_t{1} << 31;

// The kernels read elements as bytes, for which std::byte and unsigned char are the same.
const uint8_t* Raw(absl::Span<const std::byte> bytes) {
  return reinterpret_cast<const uint8_t*>(bytes.data());
}

bool IsNative(const Magnitudes& values) {
  return !values.as_f64 || values.dtype == v1::DTYPE_F64;
}

// Null where the elements lie in host memory, or are read as another dtype.
Accelerator* DeviceOf(const Magnitudes& values) {
  return IsNative(values) ? AcceleratorOf(values.bytes.data()) : nullptr;
}

const uint64_t* WordsOf(const Bitmask* mask) {
  return mask == nullptr ? nullptr : mask->words().data();
}

bool Pruned(const Bitmask* first, int64_t i) {
  return first != nullptr && !first->Keeps(i);
}

// The leading 15 bits of the images, one lane after another. The image starts in the upper half-word of an element.
template <class T>
void CountLeading(const uint8_t* elements, size_t count, uint32_t* lanes) {
  constexpr size_t kInWord = sizeof(uint64_t) / sizeof(T);
  constexpr int kTop = 8 * sizeof(T) - 16;
  constexpr size_t kStep = std::max<size_t>(kInWord, kLanes);
  size_t i = 0;
  for (; i + kStep <= count; i += kStep) {
    uint64_t words[kStep / kInWord];
    std::memcpy(words, elements + i * sizeof(T), sizeof(words));
    for (size_t j = 0; j < kStep; ++j) {
      const int shift = static_cast<int>(j % kInWord * 8 * sizeof(T)) + kTop;
      ++lanes[j % kLanes * kLeadingBins + (words[j / kInWord] >> shift & (kLeadingBins - 1))];
    }
  }
  for (; i < count; ++i) {
    T element;
    std::memcpy(&element, elements + i * sizeof(T), sizeof(T));
    ++lanes[element >> kTop & (kLeadingBins - 1)];
  }
}

}  // namespace

// Moves a stretch of all lanes into the histogram.
void Histogrammer::MergeLanes(size_t stretch, size_t nan_bin, Histogram& histogram) {
  uint32_t* lanes[kLanes];
  for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] = lanes_.data() + lane * kLeadingBins + stretch;
  uint32_t any = 0;
  for (size_t i = 0; i < Histogram::kStretch; ++i) any |= lanes[0][i] | lanes[1][i] | lanes[2][i] | lanes[3][i];
  if (any == 0) return;
  const bool has_nans = stretch + Histogram::kStretch > nan_bin;
  int64_t* const bins = histogram.Touch(std::min(stretch, nan_bin) / Histogram::kStretch);
  for (size_t i = 0; i < Histogram::kStretch; ++i) {
    const int64_t sum = int64_t{lanes[0][i]} + lanes[1][i] + lanes[2][i] + lanes[3][i];
    bins[has_nans ? std::min(stretch + i, nan_bin) % Histogram::kStretch : i] += sum;
  }
  for (uint32_t* const lane : lanes) std::fill_n(lane, Histogram::kStretch, 0);
}

void Histogrammer::AddLeading(const Magnitudes& values, const RadixPass& pass, Histogram& histogram) {
  lanes_.resize(kLanes * kLeadingBins);
  const auto width = static_cast<size_t>(DtypeSize(values.dtype));
  const size_t count = values.bytes.size() / width;
  const size_t nan_bin = values.format().nan >> pass.shift;
  for (size_t begin = 0; begin < count; begin += kCountable) {
    const uint8_t* at = Raw(values.bytes) + begin * width;
    const size_t part = std::min(kCountable, count - begin);
    if (width == 2) {
      CountLeading<uint16_t>(at, part, lanes_.data());
    } else if (width == 4) {
      CountLeading<uint32_t>(at, part, lanes_.data());
    } else {
      CountLeading<uint64_t>(at, part, lanes_.data());
    }
    for (size_t stretch = 0; stretch < kLeadingBins; stretch += Histogram::kStretch)
      MergeLanes(stretch, nan_bin, histogram);
  }
}

void Histogrammer::Add(const Magnitudes& values, const RadixPass& pass, const Bitmask* first, Histogram& histogram) {
  if (values.bytes.empty()) return;
  if (Accelerator* device = DeviceOf(values)) return AddOnDevice(*device, values, pass, first, histogram);
  const uint64_t nan = values.format().nan;
  const uint64_t low = pass.prefix << (pass.width + pass.shift);
  const uint64_t last = low + ((uint64_t{1} << (pass.width + pass.shift)) - 1);
  if (!IsNative(values)) {
    WithReader(values, [&](auto reader) {
      using Reader = decltype(reader);
      for (int64_t i = 0; i < values.size(); ++i) {
        const auto image = ImageAt<Reader>(values.bytes, i, static_cast<typename Reader::Image>(nan));
        if (image >= low && image <= last && !Pruned(first, i)) histogram.Add((image - low) >> pass.shift, 1);
      }
    });
    return;
  }
  if (pass.prefix == 0 && pass.width == kLeadingBits && pass.shift + pass.width == values.format().bits) {
    AddLeading(values, pass, histogram);
  } else {
    HWY_DYNAMIC_DISPATCH(AddWithinWords)
    (static_cast<size_t>(DtypeSize(values.dtype)), Raw(values.bytes), static_cast<size_t>(values.size()), low, last,
     nan, pass.shift, histogram);
  }
  if (first == nullptr) return;
  // What is masked is zero, unless something is wrong with the live tensor: then each of them is looked at.
  if (VerifyMask(values.dtype, values.bytes, *first).violations == 0) {
    if (low == 0) histogram.Add(0, -first->CountPruned());
    return;
  }
  WithReader(values, [&](auto reader) {
    using Reader = decltype(reader);
    for (int64_t i = 0; i < values.size(); ++i) {
      if (first->Keeps(i)) continue;
      const auto image = ImageAt<Reader>(values.bytes, i, static_cast<typename Reader::Image>(nan));
      if (image >= low && image <= last) histogram.Add((image - low) >> pass.shift, -1);
    }
  });
}

OrderCounts CountAt(const Magnitudes& values, uint64_t threshold, const Bitmask* first) {
  if (Accelerator* device = DeviceOf(values)) return CountAtOnDevice(*device, values, threshold, first);
  OrderCounts counts;
  const uint64_t nan = values.format().nan;
  if (IsNative(values)) {
    HWY_DYNAMIC_DISPATCH(CountAtWords)
    (static_cast<size_t>(DtypeSize(values.dtype)), Raw(values.bytes), static_cast<size_t>(values.size()), threshold,
     nan, WordsOf(first), counts.below, counts.equal);
    return counts;
  }
  WithReader(values, [&](auto reader) {
    using Reader = decltype(reader);
    for (int64_t i = 0; i < values.size(); ++i) {
      if (Pruned(first, i)) continue;
      const auto image = ImageAt<Reader>(values.bytes, i, static_cast<typename Reader::Image>(nan));
      counts.below += image < threshold;
      counts.equal += image == threshold;
    }
  });
  return counts;
}

Bitmask BuildMask(const Magnitudes& values, uint64_t threshold, int64_t kept_ties, const Bitmask* first) {
  if (Accelerator* device = DeviceOf(values)) return BuildMaskOnDevice(*device, values, threshold, kept_ties, first);
  Bitmask mask(values.size(), false);
  const uint64_t nan = values.format().nan;
  if (IsNative(values)) {
    HWY_DYNAMIC_DISPATCH(BuildMaskWords)
    (static_cast<size_t>(DtypeSize(values.dtype)), Raw(values.bytes), static_cast<size_t>(values.size()), threshold,
     nan, kept_ties, WordsOf(first), mask.words().data());
    return mask;
  }
  WithReader(values, [&](auto reader) {
    using Reader = decltype(reader);
    for (int64_t i = 0; i < values.size(); ++i) {
      if (Pruned(first, i)) continue;
      const auto image = ImageAt<Reader>(values.bytes, i, static_cast<typename Reader::Image>(nan));
      const bool keeps_tie = image == threshold && kept_ties > 0;
      kept_ties -= keeps_tie;
      if (image > threshold || keeps_tie) mask.Set(i, true);
    }
  });
  return mask;
}

}  // namespace espalier
#endif  // HWY_ONCE
