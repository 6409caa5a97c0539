#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "espalier/v1/worker_service.pb.h"
#include "worker/collective/collective.h"
#include "worker/mask/bitmask.h"
#include "worker/shard/shard_range.h"

namespace espalier {

// One parameter of an update as this rank holds it. All ranks pass the same parameters in the same order.
struct SelectInput {
  const v1::Parameter* parameter = nullptr;
  ShardRange range;
  absl::Span<const std::byte> values;  // range.size() elements
  const Bitmask* current = nullptr;    // present mask of the range; nullptr: none
};

struct Selection {
  std::vector<Bitmask> masks;   // parallel to the inputs, of their ranges
  std::vector<int64_t> pruned;  // full parameters' |P|, the same on all ranks
  int64_t pruned_nans = 0;      // of this shard: NaNs that the count demanded
  uint64_t hash = 0;            // of thresholds, counts and ties: equal on all ranks or the state diverged
};

// Selects the masks of one update, exactly and without gathering a parameter.
//
// Total order, pruned first to last: already masked (when monotone), then |w| (as F64 where a global selection mixes
// dtypes), then name bytewise (global selection only), then flat index of the full tensor descending. NaN sorts after
// +Inf. spec.targets are the exact |P| (see UpdateSpec): per parameter; one total for a global selection; for N:M each
// group of M along the input dimension loses max(M - N, what is zero or masked in it) and the targets are checked.
//
// Method: radix select on the order-preserving integer image of |w|. Wide local histograms stay local; 32 int64 bins a
// round and tensor are all-reduced, then one exclusive scan of the tie counts. BF16 and F16: 3 rounds.
//
// Errors: TARGET_UNPRUNABLE (dtype, row length and M, unknown input dimension, a tensor emptied by a global selection
// without allow_empty), INVARIANT (|P| out of range or not reached), and those of Collective. Local errors that depend
// on the data of one rank are exchanged before anyone returns, so that no rank is left alone in a collective.
absl::StatusOr<Selection> Select(const v1::UpdateSpec& spec, absl::Span<const SelectInput> inputs,
                                 Collective& collective, int64_t command_id);

// What CountUpdate answers of this rank's shards: for N:M the elements that Select will prune in them - entered by all
// ranks, since groups may lie on several -, for every other method the elements that are zero or masked already (those
// belong to the pruned set), without any collective. Errors as of Select.
absl::StatusOr<std::vector<int64_t>> CountForUpdate(const v1::UpdateSpec& spec, absl::Span<const SelectInput> inputs,
                                                    Collective& collective, int64_t command_id);

}  // namespace espalier
