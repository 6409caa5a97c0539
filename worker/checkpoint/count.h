#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/mask/bitmask.h"
#include "worker/shard/shard_range.h"

namespace espalier {

// What the files of a checkpoint say of a range of a parameter.
struct FileCounts {
  int64_t zeros = 0;
  int64_t masked = 0;      // by the stored mask
  int64_t violations = 0;  // not zero, and masked
  uint64_t digest = 0;     // part of the mask's digest

  void Add(const FileCounts& other);
};

// Reads and counts elements `range`, whole rows, of description().parameters(i), a bounded number at a time. `buffer` is
// scratch that callers keep. CHECKPOINT_INVALID.
absl::StatusOr<FileCounts> CountRange(const Checkpoint& checkpoint, size_t i, ShardRange range,
                                      std::vector<std::byte>& buffer);

// Reads the packed mask of `range`, whole rows, of a parameter that has_stored_mask. CHECKPOINT_INVALID.
absl::StatusOr<Bitmask> ReadStoredMask(const Checkpoint& checkpoint, size_t i, ShardRange range);

// Counts every parameter, by several threads. Parallel to description().parameters().
absl::StatusOr<std::vector<FileCounts>> CountAll(const Checkpoint& checkpoint, const ByteProgress& progress);

}  // namespace espalier
