#include "worker/session/worker_metrics.h"

#include <string>

#include "proto/support/errors.h"
#include "worker/session/holding.h"

namespace espalier {

WorkerMetrics::WorkerMetrics(Metrics& metrics) : metrics_(metrics) {
  for (const auto reason : {v1::ERROR_REASON_MASK_NOT_EFFECTIVE, v1::ERROR_REASON_STATE_DIVERGED}) {
    metrics_.Create(metric::kVerificationFailures, {ReasonName(MakeError(reason, ""))});
  }
}

void WorkerMetrics::OnWelcome() {
  metrics_.Count(metric::kSessions);
  metrics_.Set(metric::kConnected, 1);
}

void WorkerMetrics::OnSessionEnded() {
  metrics_.Set(metric::kConnected, 0);
}

void WorkerMetrics::OnCommand(const v1::Command& command, const v1::Ack& ack, absl::Duration elapsed) {
  const std::string operation = OperationOf(command);
  const double seconds = absl::ToDoubleSeconds(elapsed);
  const absl::Status status = FromProto(ack.status());
  metrics_.Count(metric::kCommands, {operation, status.ok() ? "acked" : "failed"});
  metrics_.Observe(metric::kCommandSeconds, seconds, {operation});
  if (!status.ok()) {
    const v1::ErrorReason reason = ReasonOf(status);
    if (reason == v1::ERROR_REASON_MASK_NOT_EFFECTIVE || reason == v1::ERROR_REASON_STATE_DIVERGED) {
      metrics_.Count(metric::kVerificationFailures, {ReasonName(status)});
    }
    return;
  }
  const auto phase = [&](const char* name, double value) { metrics_.Observe(metric::kPhaseSeconds, value, {name}); };
  switch (command.op_case()) {
    case v1::Command::kLoadModel:
      metrics_.Set(metric::kShardBytes, static_cast<double>(ack.load_model().shard_bytes()));
      return phase("load", seconds);
    case v1::Command::kCountUpdate:
      return phase("count", seconds);
    case v1::Command::kUpdateMasks: {
      const v1::UpdateMasksResult& result = ack.update_masks();
      phase("select", result.select_seconds());
      phase("vote", result.vote_seconds());
      phase("swap", result.swap_seconds());
      phase("verify", result.verify_seconds());
      metrics_.Set(metric::kMaskVersion, static_cast<double>(result.version()));
      return metrics_.Count(metric::kCollectiveBytes, {}, static_cast<double>(result.bytes_sent()));
    }
    case v1::Command::kReportSparsity:
      phase("report", seconds);
      return metrics_.Count(metric::kCollectiveBytes, {}, static_cast<double>(ack.report_sparsity().bytes_sent()));
    case v1::Command::kGatherParameter:
      return phase("gather", seconds);
    case v1::Command::kSaveShards:
      return phase("save", seconds);
    case v1::Command::kPublishCheckpoint:
      return phase("publish", seconds);
    case v1::Command::kLeaveGroup:
      metrics_.Set(metric::kShardBytes, 0);
      return metrics_.Set(metric::kMaskVersion, 0);
    default:
      return;
  }
}

}  // namespace espalier
