#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/mask/mask_table.h"
#include "worker/shard/shard_table.h"

namespace espalier {

// Reads what `rank` of `world_size` owns (RowShard) of every tensor, straight into its storage. No collective.
// LIMIT_EXCEEDED, before anything is read, when the machine has not the memory; CHECKPOINT_INVALID when a file cannot be
// read or has changed.
absl::StatusOr<ShardTable> LoadShards(const Checkpoint& checkpoint, int rank, int world_size,
                                      const ByteProgress& progress = {});

// The stored masks of this rank's ranges, version 0; empty without stored masks. `shards` holds what LoadShards read.
// CHECKPOINT_INVALID when a mask lies over a weight that is not zero (naming the parameter and --ignore-stored-masks), or
// has padding bits set. No collective: ranks may answer differently.
absl::StatusOr<MaskTable> LoadStoredMasks(const Checkpoint& checkpoint, const ShardTable& shards);

// LIMIT_EXCEEDED unless `needed` bytes fit into the memory that the kernel calls available.
absl::Status CheckMemory(int64_t needed);

}  // namespace espalier
