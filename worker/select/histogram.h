#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace espalier {

// Counts of one radix pass. Real weights touch few of the bins of a wide histogram, mostly next to each other: it knows
// which stretches have been touched, and sums and clears those alone.
class Histogram {
 public:
  static constexpr size_t kStretch = 64;

  // All zero, with a multiple of kStretch bins or fewer than that.
  void Reset(size_t bins) {
    for (size_t s = 0; s < touched_.size(); ++s) {
      if (touched_[s] != 0) std::fill_n(bins_.begin() + static_cast<ptrdiff_t>(s * kStretch), kStretch, 0);
    }
    const size_t stretches = (bins + kStretch - 1) / kStretch;
    touched_.assign(stretches, 0);
    bins_.resize(stretches * kStretch);
  }

  void Add(size_t bin, int64_t count) { Touch(bin / kStretch)[bin % kStretch] += count; }

  // The bins of a stretch, to be added to.
  int64_t* Touch(size_t stretch) {
    touched_[stretch] = 1;
    return &bins_[stretch * kStretch];
  }

  int64_t operator[](size_t bin) const { return bins_[bin]; }

  // Sum of [begin, begin + count); both are multiples of kStretch, or the range lies in one stretch.
  int64_t Sum(size_t begin, size_t count) const {
    int64_t sum = 0;
    for (size_t at = begin; at < begin + count; at += kStretch) {
      if (touched_[at / kStretch] == 0) continue;
      for (size_t i = 0; i < std::min(count, kStretch); ++i) sum += bins_[at + i];
    }
    return sum;
  }

 private:
  std::vector<int64_t> bins_;
  std::vector<uint8_t> touched_;  // one for each stretch
};

}  // namespace espalier
