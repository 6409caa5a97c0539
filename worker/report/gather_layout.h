#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/collective/collective.h"
#include "worker/mask/mask_table.h"
#include "worker/shard/shard_table.h"

namespace espalier {

// What each rank contributes to one gathered parameter and to its gathered mask, in the order of ranks.
struct GatherParts {
  std::vector<int64_t> value_bytes;
  int64_t value_bytes_total = 0;
  // Whole words of each rank's mask; 0 for ranks without one.
  std::vector<int64_t> mask_bytes;
  int64_t mask_bytes_total = 0;
  // Elements that each of those masks covers; 0 likewise.
  std::vector<int64_t> masked_elements;
};

// Who holds what of each parameter, agreed among all ranks before the first byte of a GATHER report moves: ranks never
// assume how another one is cut.
class GatherLayout {
 public:
  // Entered by all ranks. Also makes `buffer` on the last rank, large enough for the largest parameter and its mask, and
  // fails on all ranks when that fails (LIMIT_EXCEEDED). INVARIANT when ranges leave a gap or overlap, and the errors of
  // Collective.
  static absl::StatusOr<GatherLayout> Agree(const ShardTable& shards, const MaskTable& masks, Collective& collective,
                                            int64_t command_id, std::shared_ptr<Storage>& buffer);

  // Of the i-th name of the table.
  const GatherParts& parts(size_t i) const { return parts_[i]; }

 private:
  std::vector<GatherParts> parts_;
};

}  // namespace espalier
