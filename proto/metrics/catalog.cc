#include "proto/metrics/catalog.h"

#include <array>

namespace espalier {
namespace {

// 1 ms, doubled to 8.192 s: calls and journal writes.
constexpr std::array<double, 14> kShort = {0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064,
                                           0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192};
// 10 ms, doubled twice a step to 2913 s: phases that move a model.
constexpr std::array<double, 10> kLong = {0.01, 0.04, 0.16, 0.64, 2.56, 10.24, 40.96, 163.84, 655.36, 2621.44};

constexpr MetricSpec Make(MetricType type, absl::string_view name, absl::string_view labels, absl::string_view help,
                          absl::Span<const double> buckets = {}) {
  return {type, name, labels, help, true, true, buckets};
}
constexpr MetricSpec Coordinator(MetricSpec spec) {
  spec.worker = false;
  return spec;
}
constexpr MetricSpec Worker(MetricSpec spec) {
  spec.coordinator = false;
  return spec;
}

constexpr MetricType kCounter = MetricType::kCounter, kGauge = MetricType::kGauge, kHistogram = MetricType::kHistogram;

}  // namespace

namespace metric {

constexpr MetricSpec kBuildInfo = Make(kGauge, "espalier_build_info", "program,version", "1; what was built.");
constexpr MetricSpec kPhaseSeconds = Make(
    kHistogram, "espalier_phase_duration_seconds", "phase",
    "Duration of a phase of a command: load, count, select, vote, swap, verify, report, gather, save, publish. At the "
    "coordinator that of the slowest rank, at a worker its own.",
    kLong);
constexpr MetricSpec kCommands =
    Make(kCounter, "espalier_commands_total", "operation,outcome",
         "Commands to workers that ended: acked, failed or, where no answer came, expired.");
constexpr MetricSpec kCommandSeconds =
    Make(kHistogram, "espalier_command_duration_seconds", "operation",
         "Duration of a command; at the coordinator from the first rank's send to the last rank's answer.", kLong);
constexpr MetricSpec kCollectiveBytes =
    Make(kCounter, "espalier_collective_bytes_total", "",
         "Payload that ranks sent to each other for mask updates and reports; at the coordinator of all ranks.");
constexpr MetricSpec kVerificationFailures =
    Make(kCounter, "espalier_verification_failures_total", "reason",
         "What was measured was not what was planned (MASK_NOT_EFFECTIVE), or ranks did not agree (STATE_DIVERGED).");

constexpr MetricSpec kRuns = Coordinator(Make(kGauge, "espalier_runs", "state", "Runs that are known, by state."));
constexpr MetricSpec kRunsEnded = Coordinator(
    Make(kCounter, "espalier_runs_ended_total", "state", "Runs that ended since the start of the process."));
constexpr MetricSpec kRunFailures = Coordinator(
    Make(kCounter, "espalier_run_failures_total", "reason", "Runs that FAILED, by the reason of their error."));
constexpr MetricSpec kRunSparsity = Coordinator(Make(
    kGauge, "espalier_run_sparsity_ratio", "run,kind",
    "Sparsity of a live run's model, 0 to 1: wanted (all elements that the committed plan prunes, where it says so in "
    "advance) and measured (all zeros, as last reported). At most 32 runs; series end with the run."));
constexpr MetricSpec kRunZeros = Coordinator(
    Make(kGauge, "espalier_run_zeros", "run", "Elements of a live run's model that are zero, as last reported."));
constexpr MetricSpec kRunMasked = Coordinator(
    Make(kGauge, "espalier_run_masked", "run", "Elements of a live run's model under masks, as last reported."));
constexpr MetricSpec kRunUpdates = Coordinator(
    Make(kGauge, "espalier_run_updates", "run,kind", "Mask updates of a live run: committed, and planned in all."));
constexpr MetricSpec kRunProgressTimestamp =
    Coordinator(Make(kGauge, "espalier_run_last_progress_timestamp_seconds", "run",
                     "When something last happened to a live run that is neither queued nor held, since 1970."));
constexpr MetricSpec kMaskUpdates =
    Coordinator(Make(kCounter, "espalier_mask_updates_total", "outcome",
                     "Mask updates that were sent to a group: committed on all ranks, or failed and adopted by none."));
constexpr MetricSpec kCheckpoints =
    Coordinator(Make(kCounter, "espalier_checkpoints_total", "outcome",
                     "Saves: published, complete under their name, or failed with nothing left."));
constexpr MetricSpec kCheckpointBytes = Coordinator(
    Make(kCounter, "espalier_checkpoint_written_bytes_total", "", "Bytes that ranks wrote into checkpoints."));
constexpr MetricSpec kWorkers =
    Coordinator(Make(kGauge, "espalier_workers", "state", "Workers that are known, by state."));
constexpr MetricSpec kWorkerHeartbeatTimestamp =
    Coordinator(Make(kGauge, "espalier_worker_last_heartbeat_timestamp_seconds", "worker",
                     "When a worker that is not lost was last heard of, since 1970."));
constexpr MetricSpec kWorkersLost =
    Coordinator(Make(kCounter, "espalier_workers_lost_total", "", "Workers that were lost or replaced."));
constexpr MetricSpec kMessagesRefused =
    Coordinator(Make(kCounter, "espalier_messages_refused_total", "",
                     "Messages of older incarnations, generations or streams of workers, refused without effect."));
constexpr MetricSpec kJournalWrites = Coordinator(
    Make(kCounter, "espalier_journal_writes_total", "outcome", "Transactions of the journal: written, failed."));
constexpr MetricSpec kJournalSeconds = Coordinator(Make(kHistogram, "espalier_journal_write_duration_seconds", "",
                                                        "Duration of a transaction with its fsync.", kShort));
constexpr MetricSpec kGrpcStarted = Coordinator(Make(
    kCounter, "grpc_server_started_total", "grpc_type,grpc_service,grpc_method", "RPCs that began at the server."));
constexpr MetricSpec kGrpcHandled =
    Coordinator(Make(kCounter, "grpc_server_handled_total", "grpc_type,grpc_service,grpc_method,grpc_code",
                     "RPCs that ended at the server, by code."));
constexpr MetricSpec kGrpcSeconds =
    Coordinator(Make(kHistogram, "grpc_server_handling_seconds", "grpc_type,grpc_service,grpc_method",
                     "Duration of an RPC at the server; of a stream its whole life.", kShort));

constexpr MetricSpec kConnected = Worker(
    Make(kGauge, "espalier_worker_connected", "", "1 while the worker has a session with the coordinator, else 0."));
constexpr MetricSpec kSessions =
    Worker(Make(kCounter, "espalier_worker_sessions_total", "", "Sessions that the coordinator welcomed."));
constexpr MetricSpec kShardBytes = Worker(
    Make(kGauge, "espalier_worker_shard_bytes", "", "Bytes of the shards that the worker holds; 0 without a model."));
constexpr MetricSpec kMaskVersion = Worker(
    Make(kGauge, "espalier_worker_mask_version", "", "Mask version that the worker's shards stand at; 0 without one."));

}  // namespace metric

absl::Span<const MetricSpec* const> MetricCatalog() {
  using namespace metric;  // NOLINT(google-build-using-namespace): the list is all of it
  static constexpr const MetricSpec* kAll[] = {
      &kBuildInfo,
      &kRuns,
      &kRunsEnded,
      &kRunFailures,
      &kRunSparsity,
      &kRunZeros,
      &kRunMasked,
      &kRunUpdates,
      &kRunProgressTimestamp,
      &kMaskUpdates,
      &kPhaseSeconds,
      &kVerificationFailures,
      &kCommands,
      &kCommandSeconds,
      &kCollectiveBytes,
      &kCheckpoints,
      &kCheckpointBytes,
      &kWorkers,
      &kWorkerHeartbeatTimestamp,
      &kWorkersLost,
      &kMessagesRefused,
      &kJournalWrites,
      &kJournalSeconds,
      &kGrpcStarted,
      &kGrpcHandled,
      &kGrpcSeconds,
      &kConnected,
      &kSessions,
      &kShardBytes,
      &kMaskVersion,
  };
  return kAll;
}

}  // namespace espalier
