#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "espalier/v1/worker_service.pb.h"
#include "worker/mask/bitmask.h"
#include "worker/select/magnitude.h"
#include "worker/select/select.h"
#include "worker/shard/shard_range.h"

namespace espalier {

// How the groups of an N:M structure lie in the flattened parameter: blocks of m * stride elements, each of `stride`
// interleaved groups. Along a row the stride is 1; along dimension 0 it is the length of a row.
struct GroupLayout {
  int64_t n = 0;
  int64_t m = 0;
  int64_t stride = 1;

  int64_t block() const { return m * stride; }
  // No block lies partly in the range.
  bool Aligned(ShardRange range) const {
    return range.empty() || (range.begin % block() == 0 && range.end % block() == 0);
  }
};

// TARGET_UNPRUNABLE, naming the parameter: its input dimension is unknown, or is not a multiple of M.
absl::StatusOr<GroupLayout> GroupLayoutOf(const v1::Parameter& parameter, const v1::MaskStructure& structure);

// Groups in whole blocks of `range`, which the mask covers, that keep more than N.
int64_t CrowdedGroups(const GroupLayout& layout, const Bitmask& mask, ShardRange range);

// The order inside a group as integers: 0 for elements of `first`, else the image + 1.
uint64_t GroupKey(const Magnitudes& values, const Bitmask* first, int64_t i);

// Prunes in one block: `keys` are its block() keys; sets pruned[i] where max(M - N, zeros) of the group go.
void PruneBlock(const GroupLayout& layout, absl::Span<const uint64_t> keys, absl::Span<uint8_t> pruned);

// Prunes in all blocks that lie wholly in `range`; the other elements of the mask stay as they are.
void PruneWholeBlocks(const GroupLayout& layout, const Magnitudes& values, const Bitmask* first, ShardRange range,
                      Bitmask& mask);

}  // namespace espalier
