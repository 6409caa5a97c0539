#pragma once

#include "absl/status/status.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/collective/collective.h"
#include "worker/mask/mask_table.h"
#include "worker/shard/shard_table.h"

namespace espalier {

// Counts from the files, through the reader that everybody else uses, what this rank wrote, and compares it with the live
// tensors, looked up afresh: the same zeros, the same masked positions, and no weight that is not zero under a mask.
// MASK_NOT_EFFECTIVE (parameter, want, got); CHECKPOINT_INVALID when the files do not read back. No collective.
absl::Status Recount(const Checkpoint& written, const ShardTable& shards, const MaskTable& masks);

// Where only rank 0 sees the files: it counts them whole and compares with the sum over all ranks. Entered by all ranks;
// `written` is null on the others. The error is rank 0's alone, or that of the collective.
absl::Status RecountAtRoot(const Checkpoint* written, const ShardTable& shards, const MaskTable& masks,
                           Collective& collective, const CollectiveTag& tag);

}  // namespace espalier
