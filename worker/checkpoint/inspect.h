#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "espalier/v1/report.pb.h"
#include "worker/checkpoint/checkpoint.h"

namespace espalier {

struct InspectResult {
  std::vector<v1::ParameterSparsity> rows;  // sorted by name
  v1::SparsitySummary summary;
};

// The sparsity report of a checkpoint on disk, counted from its bytes by several threads in bounded memory. `masked`
// comes from the stored masks, structure and versions from espalier/espalier.json where there is one.
// CHECKPOINT_INVALID when a file cannot be read.
absl::StatusOr<InspectResult> InspectFiles(const Checkpoint& checkpoint, const ByteProgress& progress = {});

}  // namespace espalier
