#include "worker/select/groups.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/select/group_kernels.h"
#include "worker/select/image.h"
#include "worker/select/update.h"

namespace espalier {
namespace {

// At this group size counting predecessors in pairs becomes slower than sorting.
constexpr int64_t kPairwise = 16;

// Whether j comes before i: among equals the later one.
template <class Key>
bool Before(Key key_j, int64_t j, Key key_i, int64_t i) {
  return key_j < key_i || (key_j == key_i && j > i);
}

// How many of a group go. Keys 0 and 1 are what comes first and zeros.
template <class Key>
int64_t ToPrune(const Key* keys, int64_t m, int64_t stride, int64_t at_least) {
  int64_t zeros = 0;
  for (int64_t i = 0; i < m; ++i) zeros += keys[i * stride] <= 1;
  return std::max(at_least, zeros);
}

// Pruned elements of one short group as bits. kM is m where the compiler is to know it, else 0.
template <int kM, class Key>
uint64_t PrunedBits(const Key* keys, int64_t m, int64_t stride, int64_t at_least) {
  if constexpr (kM != 0) m = kM;
  const int64_t go = ToPrune(keys, m, stride, at_least);
  uint64_t bits = 0;
  for (int64_t i = 0; i < m; ++i) {
    int64_t before = 0;
    for (int64_t j = 0; j < m; ++j) before += Before(keys[j * stride], j, keys[i * stride], i);
    bits |= uint64_t{before < go} << i;
  }
  return bits;
}

void PruneLongGroup(const uint64_t* keys, int64_t m, int64_t stride, int64_t at_least, uint8_t* pruned) {
  const int64_t go = ToPrune(keys, m, stride, at_least);
  std::vector<int64_t> order(static_cast<size_t>(m));
  std::iota(order.begin(), order.end(), 0);
  if (go < m) {
    std::nth_element(order.begin(), order.begin() + go, order.end(),
                     [&](int64_t j, int64_t i) { return Before(keys[j * stride], j, keys[i * stride], i); });
  }
  for (int64_t i = 0; i < go; ++i) pruned[order[static_cast<size_t>(i)] * stride] = 1;
}

// Short groups along a row, the common case: keys are made and used group by group.
template <int kM, class Reader>
void PruneRowGroups(const GroupLayout& layout, const Magnitudes& values, const Bitmask* first, int64_t begin,
                    int64_t end, Bitmask& mask) {
  using Key = typename Reader::Image;
  const auto nan = static_cast<Key>(values.format().nan);
  const int64_t m = kM != 0 ? kM : layout.m;
  std::array<Key, kPairwise> keys;
  for (int64_t at = begin; at < end; at += m) {
    for (int64_t i = 0; i < m; ++i) keys[static_cast<size_t>(i)] = ImageAt<Reader>(values.bytes, at + i, nan) + 1;
    if (first != nullptr) {
      for (int64_t i = 0; i < m; ++i) {
        if (!first->Keeps(at + i)) keys[static_cast<size_t>(i)] = 0;
      }
    }
    for (uint64_t bits = PrunedBits<kM>(keys.data(), m, 1, layout.m - layout.n); bits != 0; bits &= bits - 1) {
      mask.Set(at + std::countr_zero(bits), false);
    }
  }
}

}  // namespace

absl::StatusOr<GroupLayout> GroupLayoutOf(const v1::Parameter& parameter, const v1::MaskStructure& structure) {
  GroupLayout layout;
  layout.n = structure.n();
  layout.m = structure.m();
  const std::string name = absl::StrCat(layout.n, ":", layout.m);
  if (layout.m < 1 || layout.n < 0 || layout.n > layout.m) {
    return SelectInvariant(absl::StrCat("there is no structure ", name));
  }
  const bool rows = parameter.input_dimension() == 1 &&
                    (parameter.shape_size() == 2 || parameter.layer_kind() == v1::LAYER_KIND_CONV);
  const bool columns = parameter.input_dimension() == 0 && parameter.shape_size() == 2;
  if (!rows && !columns) {
    return Unprunable(parameter.name(), absl::StrCat("the direction of its input is not known, which ", name,
                                                     " needs; ignore it or prune it unstructured"));
  }
  const int64_t row = RowElements(parameter.shape());
  if (columns) layout.stride = std::max<int64_t>(row, 1);
  const int64_t length = columns ? parameter.shape(0) : row;
  if (length % layout.m != 0) {
    return Unprunable(parameter.name(),
                      absl::StrCat("its input has ", length, " elements, not a multiple of ", layout.m, " as ", name,
                                   " needs; ignore it or prune it unstructured"));
  }
  return layout;
}

int64_t CrowdedGroups(const GroupLayout& layout, const Bitmask& mask, ShardRange range) {
  const int64_t block = layout.block();
  int64_t crowded = 0;
  for (int64_t at = (block - range.begin % block) % block; at + block <= range.size(); at += block) {
    for (int64_t group = 0; group < layout.stride; ++group) {
      int64_t kept = 0;
      for (int64_t i = 0; i < layout.m; ++i) kept += mask.Keeps(at + group + i * layout.stride) ? 1 : 0;
      crowded += kept > layout.n ? 1 : 0;
    }
  }
  return crowded;
}

uint64_t GroupKey(const Magnitudes& values, const Bitmask* first, int64_t i) {
  if (first != nullptr && !first->Keeps(i)) return 0;
  return WithReader(values, [&](auto reader) -> uint64_t {
    using Reader = decltype(reader);
    return uint64_t{ImageAt<Reader>(values.bytes, i, static_cast<typename Reader::Image>(values.format().nan))} + 1;
  });
}

void PruneBlock(const GroupLayout& layout, absl::Span<const uint64_t> keys, absl::Span<uint8_t> pruned) {
  std::fill(pruned.begin(), pruned.end(), 0);
  for (int64_t group = 0; group < layout.stride; ++group) {
    const uint64_t* const at = keys.data() + group;
    if (layout.m > kPairwise) {
      PruneLongGroup(at, layout.m, layout.stride, layout.m - layout.n, pruned.data() + group);
      continue;
    }
    const uint64_t bits = PrunedBits<0>(at, layout.m, layout.stride, layout.m - layout.n);
    for (int64_t i = 0; i < layout.m; ++i) pruned[static_cast<size_t>(group + i * layout.stride)] = bits >> i & 1;
  }
}

void PruneWholeBlocks(const GroupLayout& layout, const Magnitudes& values, const Bitmask* first, ShardRange range,
                      Bitmask& mask) {
  const int64_t block = layout.block();
  const int64_t begin = (range.begin + block - 1) / block * block - range.begin;
  const int64_t end = range.end / block * block - range.begin;
  if (begin >= end) return;
  if (layout.stride == 1 && begin == 0 && PruneGroupsByVectors(values, layout.n, layout.m, first, end, mask)) return;
  if (layout.stride == 1 && layout.m <= kPairwise) {
    WithReader(values, [&](auto reader) {
      using Reader = decltype(reader);
      if (layout.m == 4) return PruneRowGroups<4, Reader>(layout, values, first, begin, end, mask);
      if (layout.m == 8) return PruneRowGroups<8, Reader>(layout, values, first, begin, end, mask);
      return PruneRowGroups<0, Reader>(layout, values, first, begin, end, mask);
    });
    return;
  }
  std::vector<uint64_t> keys(static_cast<size_t>(block));
  std::vector<uint8_t> pruned(static_cast<size_t>(block));
  for (int64_t at = begin; at < end; at += block) {
    for (int64_t i = 0; i < block; ++i) keys[static_cast<size_t>(i)] = GroupKey(values, first, at + i);
    PruneBlock(layout, keys, absl::MakeSpan(pruned));
    for (int64_t i = 0; i < block; ++i) {
      if (pruned[static_cast<size_t>(i)] != 0) mask.Set(at + i, false);
    }
  }
}

}  // namespace espalier
