#pragma once

// The passes over a shard that selecting needs, at memory bandwidth (Highway, dispatched at run time). `first` is a mask
// of the shard whose pruned elements come before all others in the order; nullptr: there are none.

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "worker/mask/bitmask.h"
#include "worker/select/histogram.h"
#include "worker/select/magnitude.h"

namespace espalier {

// Counts elements by the bits of their image.
class Histogrammer {
 public:
  // Adds to a histogram of pass.bins() the elements that start with the prefix of the pass, but for those of `first`.
  void Add(const Magnitudes& values, const RadixPass& pass, const Bitmask* first, Histogram& histogram);

 private:
  void AddLeading(const Magnitudes& values, const RadixPass& pass, Histogram& histogram);
  void MergeLanes(size_t stretch, size_t nan_bin, Histogram& histogram);

  // Several counters for each bin: neighbours in a tensor often fall into one bin, and counting them one after another
  // in one counter waits for the store each time. All zero between calls.
  std::vector<uint32_t> lanes_;
};

// Elements below a threshold, and those equal to it, without those of `first`.
struct OrderCounts {
  int64_t below = 0;
  int64_t equal = 0;
};
OrderCounts CountAt(const Magnitudes& values, uint64_t threshold, const Bitmask* first);

// The mask that prunes `first`, what is below the threshold, and of what is equal to it all but the first `kept_ties`.
Bitmask BuildMask(const Magnitudes& values, uint64_t threshold, int64_t kept_ties, const Bitmask* first);

}  // namespace espalier
