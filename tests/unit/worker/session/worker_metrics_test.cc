#include "worker/session/worker_metrics.h"

#include "gmock/gmock.h"
#include "proto/support/errors.h"

namespace espalier {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(WorkerMetricsTest, CountsWhatItDoes) {
  Metrics metrics(Metrics::Program::kWorker);
  WorkerMetrics counted(metrics);
  counted.OnWelcome();
  v1::Command command;
  v1::Ack ack;
  command.mutable_load_model();
  ack.mutable_load_model()->set_shard_bytes(4096);
  counted.OnCommand(command, ack, absl::Seconds(2));
  command.mutable_update_masks();
  v1::UpdateMasksResult& result = *ack.mutable_update_masks();
  result.set_version(3);
  result.set_bytes_sent(48);
  result.set_select_seconds(0.5);
  counted.OnCommand(command, ack, absl::Seconds(1));
  EXPECT_THAT(metrics.Text(),
              AllOf(HasSubstr("espalier_worker_connected 1\n"), HasSubstr("espalier_worker_shard_bytes 4096\n"),
                    HasSubstr("espalier_worker_mask_version 3\n"), HasSubstr("espalier_collective_bytes_total 48\n"),
                    HasSubstr("espalier_phase_duration_seconds_sum{phase=\"load\"} 2\n"),
                    HasSubstr("espalier_phase_duration_seconds_sum{phase=\"select\"} 0.5\n")));
  *ack.mutable_status() = ToProto(MakeError(v1::ERROR_REASON_STATE_DIVERGED, "rank 1 selected otherwise"));
  counted.OnCommand(command, ack, absl::Seconds(1));
  command.mutable_leave_group();
  counted.OnCommand(command, v1::Ack(), absl::ZeroDuration());
  counted.OnSessionEnded();
  EXPECT_THAT(metrics.Text(),
              AllOf(HasSubstr("espalier_worker_connected 0\n"), HasSubstr("espalier_worker_sessions_total 1\n"),
                    HasSubstr("espalier_worker_shard_bytes 0\n"), HasSubstr("espalier_worker_mask_version 0\n"),
                    HasSubstr("espalier_verification_failures_total{reason=\"STATE_DIVERGED\"} 1\n"),
                    HasSubstr("espalier_verification_failures_total{reason=\"MASK_NOT_EFFECTIVE\"} 0\n"),
                    HasSubstr("espalier_commands_total{operation=\"UpdateMasks\",outcome=\"acked\"} 1\n"),
                    HasSubstr("espalier_phase_duration_seconds_count{phase=\"select\"} 1\n")));
}

}  // namespace
}  // namespace espalier
