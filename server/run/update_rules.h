#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "espalier/v1/report.pb.h"
#include "espalier/v1/worker_service.pb.h"

namespace espalier {

// The arithmetic of mask updates, pure. Vectors of counts are parallel to the parameters of the update.

// One rank's counts, as its CountPages carried them.
struct RankCounts {
  std::vector<int64_t> counts;
  std::vector<int64_t> zeros;
  std::vector<int64_t> violations;
};

// How many elements an update is going to prune.
struct Intent {
  // |P|: per parameter; one total for a global selection.
  std::vector<int64_t> targets;
  // `compat: sparseml` prunes all ties, so that |P| is known only afterwards: targets are lower bounds.
  bool at_least = false;
};

// |P| from k (`counting.targets`) and what the ranks counted, summed over ranks:
//  - per tensor |P| = max(k, zeros or masked already); a global selection the same of its total;
//  - N:M and constant: the sum itself.
// INVARIANT when the counts of a rank do not fit the parameters.
absl::StatusOr<Intent> DecidePruned(const v1::UpdateSpec& counting, absl::Span<const int64_t> numel,
                                    absl::Span<const RankCounts> ranks);

struct RankUpdate {
  RankCounts counts;
  v1::UpdateMasksResult result;
};

struct Committed {
  // Positions masked, summed over ranks.
  std::vector<int64_t> masked;
  // Of all masks: the parts of all ranks, added modulo 2^61 - 1.
  uint64_t mask_digest = 0;
  uint64_t selection_hash = 0;
};

// Whether all ranks did what was intended. STATE_DIVERGED (rank, want, got): versions or selection hashes differ.
// MASK_NOT_EFFECTIVE (parameter, want, got): non-zeros under the mask, or fewer zeros than masked positions. INVARIANT:
// counts that do not fit, or a sum of masked positions that is not |P|. With `checks` false only what could not be
// stored is refused (ChecksOn).
absl::StatusOr<Committed> CheckUpdate(const v1::UpdateSpec& pushed, const Intent& intent,
                                      absl::Span<const RankUpdate> ranks, bool checks);

// Planned = measured, the last check before a save: every row with `planned` >= 0 has exactly that many masked positions
// and at least as many zeros. MASK_NOT_EFFECTIVE (parameter, want, got).
absl::Status CheckPlanned(absl::Span<const v1::ParameterSparsity> rows);

}  // namespace espalier
