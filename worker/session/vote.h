#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace espalier {

// What a rank says about one update before any rank adopts it.
struct Vote {
  bool ok = false;  // selected without an error
  int32_t rank = 0;
  int64_t generation = 0;
  int64_t version = 0;
  uint64_t run_hash = 0;        // of the run's name
  uint64_t selection_hash = 0;  // what all must have computed alike
  uint64_t digest_part = 0;     // of the update's new masks, this shard's: parts add up
};

// 64 bytes, little-endian; the last 8 are a check of the others.
inline constexpr size_t kVoteBytes = 64;
using VoteRecord = std::array<std::byte, kVoteBytes>;

VoteRecord EncodeVote(const Vote& vote);

struct Verdict {
  bool adopt = false;
  bool all_refused = false;  // every rank failed by itself, alike: nothing is in doubt
  absl::Status status;       // why not
  uint64_t digest = 0;       // of the update's new masks over all ranks
};

// Folds the records of all ranks, in their order; every rank gets the same answer. Not all ok: INVARIANT naming the ranks
// that refused. Not all equal: STATE_DIVERGED (rank, want, got), naming a rank that differs from most, or both where
// there is no majority.
Verdict FoldVotes(absl::Span<const std::byte> records);

}  // namespace espalier
