#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/collective/collective.h"
#include "worker/mask/bitmask.h"
#include "worker/select/magnitude.h"

namespace espalier {

// Which magnitude is the count-th smallest, from 1, of the elements of all parts of all ranks? Those that the `first`
// masks prune do not take part.
struct ThresholdQuery {
  struct Part {
    Magnitudes values;
    const Bitmask* first = nullptr;
  };
  std::vector<Part> parts;  // this rank's, all of `format`
  ImageFormat format;       // the same on all ranks, as are the two below
  int64_t count = 0;        // 0: the answer is image 0 with nothing below
  int64_t elements = 0;     // that must take part in all
};

struct Threshold {
  uint64_t image = 0;
  int64_t below = 0;        // elements below it, on all ranks
  int64_t equal = 0;        // elements equal to it, on all ranks
  int64_t local_equal = 0;  // this rank's
};

// Answers all queries together, exactly. Histograms stay local; 32 int64 bins a query are all-reduced in each round, one
// round for every 5 bits. Queries are worked off in batches whose histograms take at most 16 MiB. INVARIANT when the
// ranks together do not hold `elements`, and the errors of Collective; all ranks fail alike.
absl::StatusOr<std::vector<Threshold>> FindThresholds(absl::Span<const ThresholdQuery> queries, Collective& collective,
                                                      const CollectiveTag& tag);

}  // namespace espalier
