#pragma once

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "espalier/v1/report.pb.h"
#include "proto/support/summary.h"
#include "worker/collective/collective.h"
#include "worker/mask/mask_table.h"
#include "worker/shard/shard_table.h"

namespace espalier {

struct ReportOptions {
  v1::ReportMode mode = v1::REPORT_MODE_SHARD_COUNTS;
  int64_t command_id = 0;
  // Called with (parameters done, parameters in all).
  std::function<void(int64_t, int64_t)> progress = [](int64_t, int64_t) {};
};

// Rows of a report of the live model, sorted by name; full on every rank in SHARD_COUNTS, on rank 0 alone in GATHER
// (empty elsewhere). Entered by all ranks.
//  - SHARD_COUNTS: each rank counts its live shards; zeros and masked, two int64 a tensor and rank, are summed.
//  - GATHER: each full parameter, and then its packed mask, is assembled in turn on the last rank, which owns the smallest
//    share, and counted there; memory is bounded by the largest parameter. The counts then go to rank 0.
// Errors: those of Collective.
absl::StatusOr<std::vector<v1::ParameterSparsity>> ComputeReport(const ShardTable& shards, const MaskTable& masks,
                                                                 Collective& collective, const ReportOptions& options);

}  // namespace espalier
