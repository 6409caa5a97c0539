#include "worker/select/group_kernels.h"

#include <array>

// Highway compiles this file once for each instruction set and picks the best at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker/select/group_kernels.cc"
#include "hwy/foreach_target.h"
// clang-format off: foreach_target.h comes first
#include "hwy/highway.h"
#include "worker/select/words-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace espalier {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR  // no vector holds a group
bool PruneGroups(size_t, const uint8_t*, size_t, int64_t, uint64_t, int64_t, const uint64_t*, uint64_t*) {
  return false;
}
#else

constexpr size_t kBlockBytes = 16;  // what TableLookupBytes looks through

// The elements of a block of a vector turned by `by` inside their groups of kM: where each lane's element comes from,
// and 1 in the lanes whose new element stands later in the group than their own.
template <class T, size_t kM>
struct Turn {
  static constexpr size_t kLanes = kBlockBytes / sizeof(T);
  static_assert(kLanes % kM == 0);

  constexpr explicit Turn(size_t by) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const size_t in_group = lane % kM;
      const size_t source = lane - in_group + (in_group + by) % kM;
      for (size_t b = 0; b < sizeof(T); ++b) bytes[lane * sizeof(T) + b] = static_cast<uint8_t>(source * sizeof(T) + b);
      later[lane] = source > lane ? 1 : 0;
    }
  }

  alignas(kBlockBytes) uint8_t bytes[kBlockBytes] = {};
  alignas(kBlockBytes) T later[kLanes] = {};
};

// Each element counts those of its group that come before it: the smaller ones, and of its equals the later ones.
template <class T, size_t kM>
void PruneGroupsOf(const uint8_t* elements, size_t count, T nan, T at_least, const uint64_t* first, uint64_t* keep) {
  const Elements<T> d;
  const hn::Repartition<uint8_t, decltype(d)> bytes;
  ForEachWord<T>(elements, 0, count, [&](size_t w, const uint8_t* at, uint64_t valid) {
    const uint64_t pruned = WordOfMasks<T>([&](size_t i) {
      // Keys as in groups.h: 0 comes first, 1 is zero.
      auto keys = hn::Add(LoadImages<T>(d, at + i * sizeof(T), nan), hn::Set(d, T{1}));
      if (first != nullptr) keys = hn::IfThenElseZero(MaskFromBits(d, first[w] >> i), keys);
      auto before = hn::Zero(d);
      for (size_t by = 1; by < kM; ++by) {
        const Turn<T, kM> turn(by);
        const auto others =
            hn::BitCast(d, hn::TableLookupBytes(hn::BitCast(bytes, keys), hn::LoadDup128(bytes, turn.bytes)));
        const auto comes_before = hn::Lt(others, hn::Add(keys, hn::LoadDup128(d, turn.later)));
        before = hn::Sub(before, hn::VecFromMask(d, comes_before));
      }
      // Zeros go even where they are more than the structure asks for; nothing else can then come before them.
      return hn::Or(hn::Lt(before, hn::Set(d, at_least)), hn::Lt(keys, hn::Set(d, T{2})));
    });
    keep[w] &= ~(pruned & valid);
  });
}

bool PruneGroups(size_t width, const uint8_t* elements, size_t count, int64_t m, uint64_t nan, int64_t at_least,
                 const uint64_t* first, uint64_t* keep) {
  const auto run = [&]<class T, size_t kM>(std::integral_constant<size_t, kM>, T) {
    PruneGroupsOf<T, kM>(elements, count, static_cast<T>(nan), static_cast<T>(at_least), first, keep);
    return true;
  };
  using Two = std::integral_constant<size_t, 2>;
  using Four = std::integral_constant<size_t, 4>;
  using Eight = std::integral_constant<size_t, 8>;
  if (width == 2 && m == 2) return run(Two(), int16_t{});
  if (width == 2 && m == 4) return run(Four(), int16_t{});
  if (width == 2 && m == 8) return run(Eight(), int16_t{});
  if (width == 4 && m == 2) return run(Two(), int32_t{});
  if (width == 4 && m == 4) return run(Four(), int32_t{});
  if (width == 8 && m == 2) return run(Two(), int64_t{});
  return false;
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace espalier
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "worker/shard/dtype.h"

namespace espalier {
namespace {

HWY_EXPORT(PruneGroups);

}  // namespace

bool PruneGroupsByVectors(const Magnitudes& values, int64_t n, int64_t m, const Bitmask* first, int64_t count,
                          Bitmask& mask) {
  if (values.as_f64) return false;
  // The kernels read elements as bytes, for which std::byte and unsigned char are the same.
  return HWY_DYNAMIC_DISPATCH(PruneGroups)(static_cast<size_t>(DtypeSize(values.dtype)),
                                           reinterpret_cast<const uint8_t*>(values.bytes.data()),
                                           static_cast<size_t>(count), m, values.format().nan, m - n,
                                           first == nullptr ? nullptr : first->words().data(), mask.words().data());
}

}  // namespace espalier
#endif  // HWY_ONCE
