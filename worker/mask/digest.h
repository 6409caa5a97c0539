#pragma once

// Digest of masks that does not depend on how parameters are cut: sum over j of v_j * r_j mod p with p = 2^61 - 1,
// where v_j is the 32-bit number whose bit b is set when element 32 j + b of the full parameter is pruned, and r_j =
// mix(fnv1a64(name) + j * 0x9E3779B97F4A7C15 mod 2^64) mod p, mix the finalizer of splitmix64. It is linear: the parts
// of shards (also those that cut a word) and of parameters add up mod p.

#include <cstdint>

#include "absl/strings/string_view.h"
#include "proto/support/digest_sum.h"
#include "worker/mask/bitmask.h"
#include "worker/shard/shard_range.h"

namespace espalier {

// Part of one shard: `mask` covers `range` of the parameter. AddDigests joins parts.
uint64_t MaskDigest(absl::string_view name, const Bitmask& mask, ShardRange range);

}  // namespace espalier
